"""What safedev costs, beside what it could cost at least and beside others: ``python -m benchmarks``.

See ``docs/explanation/performance.md`` for the method, the results and how to run it.
"""

import sys
from pathlib import Path

# The pretend GPUs, which are the tests' as well.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "pretend_gpu"))
