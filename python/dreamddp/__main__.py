import sys

from dreamddp.cli import main

sys.exit(main())
