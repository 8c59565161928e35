from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
from penstock.common.arrow import leave_pandas_out
leave_pandas_out()
import numpy as np
import pyarrow as pa
assert pa.array(np.arange(3)).to_numpy().sum() == 3
assert pa.array([{"a": 1}]).to_pylist() == [{"a": 1}]
assert "pandas" not in sys.modules
import pandas
leave_pandas_out()
assert sys.modules["pandas"] is pandas
"""


def test_pyarrow_works_without_importing_pandas_which_can_still_be_imported() -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], check=True)
