"""Process mains for tests of the supervisor."""
