"""Workers that train one model with `model.fit` and MultiWorkerMirroredStrategy, and continue from the last epoch after a failure.

TensorFlow finds the other workers through TF_CONFIG, which the operator sets. Keras 3 does not support this strategy, so the
program uses tf_keras, which is Keras 2 for TensorFlow 2.16 and later.

    python keras_tensorflow.py FOLDER EPOCHS      FOLDER is on a volume that all workers share

TensorFlow cannot replace a worker that failed, so the job needs a failure policy that restarts all (keras-tensorflow.yaml).
"""

import sys

import numpy as np
import tensorflow as tf
import tf_keras

CLASSES, PIXELS, HIDDEN, BATCH, STEPS = 10, 28 * 28, 32, 64, 20


def digits(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Generated digits in MNIST's format: noisy copies of ten pictures."""
    pictures = np.random.default_rng(0).random((CLASSES, PIXELS), dtype=np.float32) - 0.5
    random = np.random.default_rng(seed)
    labels = random.integers(0, CLASSES, count)
    return pictures[labels] + random.normal(0.0, 0.3, (count, PIXELS)).astype(np.float32), labels


class Progress(tf_keras.callbacks.Callback):
    """Log the loss of each epoch."""

    def on_epoch_begin(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Log the first epoch, which is 0 unless a backup was restored."""
        if self.params.get("first") is None:
            self.params["first"] = epoch
            print(f"restored after epoch {epoch}" if epoch else "trains from the beginning", flush=True)

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Log the loss."""
        print(f"epoch {epoch} loss {(logs or {})['loss']:.6f}", flush=True)


def train(folder: str, epochs: int) -> None:
    """Train up to a total number of epochs, including those before restarts, and save the model."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    place = strategy.cluster_resolver
    tf_keras.utils.set_random_seed(0)
    with strategy.scope():
        model = tf_keras.Sequential(
            [
                tf_keras.layers.Dense(HIDDEN, "relu", input_shape=(PIXELS,)),
                tf_keras.layers.Dense(CLASSES, "softmax"),
            ]
        )
        model.compile(tf_keras.optimizers.SGD(0.02), "sparse_categorical_crossentropy")
    # Keras gives each worker its part of every batch.
    data = tf.data.Dataset.from_tensor_slices(digits(BATCH * STEPS, seed=1)).batch(BATCH)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    print(f"{place.task_type} {place.task_id} of {strategy.num_replicas_in_sync} trains", flush=True)
    # All workers save, because saving is collective; Keras writes the files of the others to temporary folders.
    backup = tf_keras.callbacks.BackupAndRestore(f"{folder}/backup", delete_checkpoint=False)
    model.fit(data.with_options(options), epochs=epochs, callbacks=[backup, Progress()], verbose=0)
    mine = f"{folder}/model" if place.task_id == 0 else f"/tmp/model-{place.task_id}"
    model.save(mine)
    print(f"saved the model after epoch {epochs}", flush=True)


if __name__ == "__main__":
    train(sys.argv[1], int(sys.argv[2]))
