"""Processes that train one model with Keras 3 on JAX and continue from the last checkpoint after a failure.

The operator sets the variables KERAS_DISTRIBUTION_*, so `keras.distribution.initialize()` is enough to find the other processes.
This program passes their values to JAX itself, because Keras has no parameter for how long processes wait for each other.

    python keras_jax.py FOLDER EPOCHS      FOLDER is on a volume that all processes share

Each process computes the gradients of its part of every batch. JAX cannot replace a process that failed: the others hang, or
abort with 134. Therefore, the job needs a failure policy that restarts all of them (keras-jax.yaml).
"""

import os
import shutil
import sys
import traceback
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "jax")

import jax
import keras
import numpy as np

CLASSES, PIXELS, HIDDEN, BATCH, STEPS = 10, 28 * 28, 32, 64, 20
JOIN_S = 3600
"""How long a process waits for the others to start, for example while their image is pulled. The default is 300 s."""


HEARTBEAT = Path("/tmp/heartbeat")
"""Touched after each batch. A probe of the container ends a process that has hung, as all do if one of them hangs."""


class Heartbeat(keras.callbacks.Callback):
    """Show the kubelet that the training makes progress."""

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        """Update the time of the file."""
        HEARTBEAT.touch()


def digits(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Generated digits in MNIST's format: noisy copies of ten pictures."""
    pictures = np.random.default_rng(0).random((CLASSES, PIXELS), dtype=np.float32) - 0.5
    random = np.random.default_rng(seed)
    labels = random.integers(0, CLASSES, count)
    return pictures[labels] + random.normal(0.0, 0.3, (count, PIXELS)).astype(np.float32), labels


def new_model() -> keras.Model:
    """One hidden layer; the seed gives all processes the same weights."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [keras.Input((PIXELS,)), keras.layers.Dense(HIDDEN, "relu"), keras.layers.Dense(CLASSES, "softmax")]
    )
    model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy")
    return model


def train(folder: Path, epochs: int) -> None:
    """Train up to a total number of epochs, including those before restarts, and save the model."""
    rank, processes = jax.process_index(), jax.process_count()
    checkpoint, mine = folder / "checkpoint.keras", folder / f"of-process-{rank}.keras"
    keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
    # No process finishes an epoch before all have read the checkpoint, so they continue from the same one.
    first = 0
    model = new_model()
    if checkpoint.exists():
        model = keras.saving.load_model(checkpoint)
        first = int(model.optimizer.iterations) // STEPS
        print(f"restored after epoch {first}", flush=True)
    print(f"process {rank} of {processes} trains", flush=True)
    for epoch in range(first, epochs):
        images, labels = digits(BATCH * STEPS, seed=epoch)
        part = slice(rank, None, processes)
        seen = model.fit(
            images[part], labels[part], BATCH // processes, shuffle=False, callbacks=[Heartbeat()], verbose=0
        )
        print(f"epoch {epoch} loss {seen.history['loss'][0]:.6f}", flush=True)
        model.save(mine)  # collective, so all processes save; the file of the first one becomes the checkpoint
        if rank == 0:
            mine.replace(checkpoint)  # atomic: a process that is killed here leaves the previous checkpoint
    if rank == 0:
        shutil.copy(checkpoint, folder / "model.keras")
        print(f"saved the model after epoch {epochs}", flush=True)


if __name__ == "__main__":
    jax.distributed.initialize(
        os.environ["JAX_COORDINATOR_ADDRESS"],
        int(os.environ["JAX_NUM_PROCESSES"]),
        int(os.environ["JAX_PROCESS_ID"]),
        cluster_detection_method="deactivate",  # it would search Slurm, TPUs and Kubernetes, and may fail
        initialization_timeout=JOIN_S,
    )
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    try:
        train(Path(sys.argv[1]), int(sys.argv[2]))
    except Exception:
        # At the end of Python, JAX would wait for the other processes, which wait for this one, and abort all after five minutes.
        traceback.print_exc()
        os._exit(1)
