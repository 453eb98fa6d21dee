"""What turns the action of a policy into the action that is tried."""
