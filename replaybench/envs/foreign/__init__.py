"""Plants that other code simulates: Python functions, tasks of Gymnasium and tasks of dm_control."""
