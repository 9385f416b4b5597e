"""What safedev costs, beside what it could cost at least and beside others: ``python -m benchmarks``.

See ``docs/explanation/performance.md`` for the method, the results and how to run it.
"""
