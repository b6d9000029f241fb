"""What `dreamddp train` does: real training, planner after planner, over an emulated or the real link."""
