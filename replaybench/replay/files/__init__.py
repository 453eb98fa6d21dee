"""Buffers as files: read, continued, streamed."""
