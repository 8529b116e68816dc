"""What a run tells about itself: events, status, idle time, trackers. Decides nothing and never stops training."""
