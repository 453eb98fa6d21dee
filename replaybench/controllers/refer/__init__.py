"""Remember and Forget Experience Replay: behaviour densities, the far-policy count, stored returns."""
