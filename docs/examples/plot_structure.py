"""
Finding two nodes
=================

Labels that come from a network with two hidden nodes. A network of 15 nodes is asked to
learn them, once under the horseshoe prior and once under a Gaussian one. The figures
show which nodes have weights.
"""

# %%
# Both fits have the same data, the same seed and the same training.

import matplotlib.pyplot as plt
import numpy as np

from farrier import HorseshoeClassifier, datasets

X, y = datasets.two_two_one(1_000, seed=0)
models = {
    prior: HorseshoeClassifier((15,), prior=prior, random_state=0).fit(X, y)
    for prior in ("horseshoe", "gaussian")
}

# %%
# The norm of the expected weights into each node. Under the horseshoe prior two nodes
# are left, and the others are at 0; under the Gaussian prior all keep their weights.

figure, axes = plt.subplots(1, 2, figsize=(8, 3), layout="constrained", sharey=True)
colours = {"horseshoe": "#1f6f8b", "gaussian": "#c05a2e"}
for ax, (prior, model) in zip(axes, models.items(), strict=True):
    norms = np.sort(model.weight_norms_[0])[::-1]
    ax.bar(np.arange(15), norms / norms.max(), color=colours[prior])
    ax.set(title=f"{prior}: {model.widths_[0]} active nodes", xlabel="node, sorted")
axes[0].set_ylabel("norm of its weights, of the largest")

# %%
# The probability of the second class over the plane.

side = np.linspace(-3, 3, 120)
plane = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)
p = models["horseshoe"].predict_proba(plane)[:, 1].reshape(120, 120)
figure, ax = plt.subplots(figsize=(5, 4), layout="constrained")
shown = ax.contourf(side, side, p, levels=np.linspace(0, 1, 11), cmap="RdBu")
ax.scatter(*X[:200].T, c=y[:200], cmap="RdBu", edgecolors="0.3", s=15, lw=0.5)
figure.colorbar(shown, label="probability of class 1")
ax.set(xlabel="first input", ylabel="second input")
