"""A process that leaves early still says all it had to say."""

import subprocess
import sys


def test_leaving_keeps_the_code_the_last_words_the_threads_work_and_what_was_registered():
    code = (
        "import atexit, sys, threading; from gyre_hpc.shell.lifetime import leave; atexit.register(print, 'registered');"
        "going = threading.Event(); threading.Thread(target=lambda: (going.wait(), print('done'))).start();"
        "print('said'); print('told', file=sys.stderr, end=''); threading.Timer(0.05, going.set).start(); leave(3); print('never')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, "said\ndone\nregistered\n", "told")
