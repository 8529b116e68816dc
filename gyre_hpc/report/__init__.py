"""Reads a run folder, nothing else: live view, summary.json, report.html, comparison."""
