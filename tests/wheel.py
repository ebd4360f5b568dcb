"""What the package does where no extra is installed; run by wheel.sh, not by pytest."""

import sys
import warnings
from importlib.util import find_spec

import numpy as np

from farrier import HorseshoeRegressor, TrainingWarning, load

EXTRAS = ("typer", "rich", "matplotlib", "pandas", "pyarrow", "onnx", "skl2onnx")
EXTRAS += ("jinja2", "pooch")

warnings.simplefilter("ignore", TrainingWarning)
random = np.random.default_rng(0)
X = random.normal(size=(50, 3))
y = X[:, 0] + 0.1 * random.normal(size=50)
model = HorseshoeRegressor((10,), random_state=0).fit(X, y)
model.save(sys.argv[1])
predicted = load(sys.argv[1]).predict(X)
assert np.array_equal(predicted, model.predict(X)), "The file predicts other values."
error = np.sqrt(np.mean((predicted - y) ** 2))
assert error < 0.5 * np.std(y), f"The fit has learned nothing: RMSE {error:.3g}."
there = [name for name in EXTRAS if name in sys.modules or find_spec(name)]
assert not there, f"The package without extras brings {there}."
for folder in ("experiments", "benchmarks", "tests"):
    assert find_spec(folder) is None, f"The wheel has a folder {folder!r}."
