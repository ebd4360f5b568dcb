"""
A cubic from twenty points
==========================

Twenty noisy points of a cubic, and a network of 100 nodes: five times as many nodes as
points. Under the horseshoe prior a handful of them are active. Beyond the points the
prediction goes on in straight lines: the band widens, but the network has no
information that the curve bends away.
"""

# %%
# The fit, with default settings.

import matplotlib.pyplot as plt
import numpy as np

from farrier import HorseshoeRegressor, datasets

X, y = datasets.cubic(20, seed=1)
model = HorseshoeRegressor((100,), random_state=0).fit(X, y)
print("active nodes:", model.widths_)

# %%
# Mean and 90 % interval, beyond the data on both sides.

grid = np.linspace(-6, 6, 200)[:, None]
low, high = model.predict_interval(grid, level=0.9)
figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.fill_between(grid[:, 0], low, high, color="#1f6f8b", alpha=0.2, label="90 %")
ax.plot(grid, model.predict(grid), color="#1f6f8b", label="mean")
ax.plot(grid, grid**3, color="0.4", ls=":", label="the cubic")
ax.plot(X, y, "o", color="#c05a2e", ms=5, label="data")
ax.set(xlabel="x", ylabel="y", ylim=(-250, 250))
ax.legend(frameon=False)

# %%
# What each node contributes to the output. A node below the line at 1 % is inactive.

figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
ax.semilogy(np.sort(model.node_scores_[0])[::-1], "o", ms=4, color="#1f6f8b")
ax.axhline(0.01, color="0.4", lw=1)
ax.set(xlabel="node, sorted", ylabel="share in the output")
