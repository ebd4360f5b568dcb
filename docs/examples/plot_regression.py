"""
A table: intervals, inputs, calibration
=======================================

Six inputs, of which three matter, two of them only through their product. Predictions
with intervals, the inputs that matter, and the two sources of uncertainty.
"""

# %%
# The data are generated, with noise of variance 1.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import train_test_split

from farrier import HorseshoeRegressor

rng = np.random.default_rng(0)
X = rng.uniform(size=(600, 6))
y = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2
y += rng.normal(size=len(y))
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
model = HorseshoeRegressor((50,), random_state=0).fit(X_train, y_train)

# %%
# Predicted against observed, with 90 % intervals: nine in ten should reach the line.

mean = model.predict(X_test)
low, high = model.predict_interval(X_test, level=0.9)
inside = np.mean((low < y_test) & (y_test < high))
figure, ax = plt.subplots(figsize=(5, 4.5), layout="constrained")
ax.vlines(mean, low, high, color="#1f6f8b", alpha=0.3)
ax.plot(mean, y_test, "o", ms=4, color="#c05a2e")
ax.axline((10, 10), slope=1, color="0.4", lw=1)
title = f"{inside:.0%} inside 90 % intervals"
ax.set(xlabel="predicted", ylabel="observed", title=title)

# %%
# How much of the target's variance each input carries, with the posterior's own 90 %
# interval.

score = model.feature_scores_
ends = np.abs(np.stack(model.feature_interval(0.9)) - score)
figure, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.bar(np.arange(6), score, yerr=ends, color="#1f6f8b", capsize=3)
ax.set(xlabel="input", ylabel="share of the variance")

# %%
# Aleatoric and epistemic variance: the variance of the noise was 1.

noise, weights = model.predict_variance(X_test)
print(f"noise {noise.mean():.2f}, from not knowing the weights {weights.mean():.2f}")
