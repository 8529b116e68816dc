"""What a run tells about itself: events, metrics, status, idle time, trackers. Decides nothing and never stops training."""
