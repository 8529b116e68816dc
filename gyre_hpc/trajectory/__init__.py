"""From journal to loss, pure: segments, tree, admission, advantage, packing into micro-batches."""
