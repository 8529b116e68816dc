"""What every attempt leaves, however it ended: summary and report of what there is so far."""

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.errors import UserError
from gyre_hpc.report.html import write_report
from gyre_hpc.report.story import read_story
from gyre_hpc.report.summary import closing_line, write_summary


def write_up(folder: RunFolder) -> str:
    """Write both; the line that says how the run went. Raises UserError where the disk or a damaged file forbids it."""
    try:
        summary = write_summary(read_story(folder.root))
        write_report(read_story(folder.root))
    except (OSError, UserError) as error:
        raise UserError(
            "paths.run", str(folder.root), f"no report ({error}); make room or mend it, then: gyre report {folder.root}"
        ) from error
    return closing_line(summary, folder.report)
