"""``python -m safedev``."""

from safedev._audit import main

raise SystemExit(main())
