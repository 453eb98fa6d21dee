"""The interface of learners, with exploration and recurrent states."""
