"""What a full buffer keeps."""
