"""Workers that train one model with MultiWorkerMirroredStrategy and continue from the last checkpoint after a failure.

TensorFlow finds the other workers through TF_CONFIG, which the operator sets; this program does not use it directly. Each
worker has a copy of the model, and gradients are averaged over all workers in each step.

    python multi_worker.py FOLDER STEPS      FOLDER is on a volume that all workers share

It exits with 1 if another worker was lost. The job's failure policy then restarts all workers, which reconnect and continue from
the latest checkpoint.
"""

import os
import sys

import numpy as np
import tensorflow as tf

CLASSES, PIXELS, HIDDEN, BATCH, RATE = 10, 28 * 28, 32, 64, 0.1
EVERY = 20
"""Steps between two checkpoints and between two log lines."""
SCALAR = tf.compat.v1.SummaryMetadata(plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars"))
"""The metadata that `tf.summary.scalar` adds. TensorFlow 2.21 has that function only if TensorBoard is installed."""
PEER_LOST = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
    tf.errors.InternalError,
    tf.errors.UnavailableError,
)


def digits(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Generated digits in MNIST's format: noisy copies of ten pictures."""
    pictures = np.random.default_rng(0).random((CLASSES, PIXELS), dtype=np.float32) - 0.5
    random = np.random.default_rng(seed)
    labels = random.integers(0, CLASSES, count)
    return pictures[labels] + random.normal(0.0, 0.3, (count, PIXELS)).astype(np.float32), labels


class Model(tf.Module):
    """One hidden layer. Each worker adds its own gradients, and the aggregation of the variables averages them."""

    def __init__(self) -> None:
        super().__init__()
        self.step = tf.Variable(
            0, dtype=tf.int64, trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA
        )
        self.layers = [self._weights(PIXELS, HIDDEN), self._weights(1, HIDDEN), self._weights(HIDDEN, CLASSES)]

    @staticmethod
    def _weights(rows: int, columns: int) -> tf.Variable:
        start = tf.random.stateless_normal((rows, columns), seed=(rows, columns), stddev=rows**-0.5)
        return tf.Variable(start, aggregation=tf.VariableAggregation.MEAN)

    @tf.function(input_signature=[tf.TensorSpec((None, PIXELS), tf.float32)])
    def __call__(self, images: tf.Tensor) -> tf.Tensor:
        first, bias, second = self.layers
        return tf.nn.relu(images @ first + bias) @ second

    def learn(self, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Train one step on one batch; return its loss."""
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, self(images))
            loss = tf.reduce_mean(losses)
        for weights, gradient in zip(self.layers, tape.gradient(loss, self.layers), strict=True):
            weights.assign_sub(RATE * gradient)
        self.step.assign_add(1)
        return loss


def train(folder: str, steps: int) -> None:
    """Train up to a total number of steps, including those before restarts, and save the model."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    place = strategy.cluster_resolver
    is_first = place.task_id == 0
    # All workers must save, because saving is collective; only the first worker's files are used.
    mine = folder if is_first else f"/tmp/{place.task_type}-{place.task_id}"
    images, labels = digits(4096, seed=place.task_id)
    with strategy.scope():
        model = Model()
    saved = tf.train.Checkpoint(model=model)
    manager = tf.train.CheckpointManager(saved, f"{mine}/checkpoints", max_to_keep=3)
    summaries = tf.summary.create_file_writer(f"{mine}/summaries")
    newest = tf.train.latest_checkpoint(f"{folder}/checkpoints")
    if newest is not None:
        saved.restore(newest).assert_existing_objects_matched()
        print(f"restored from step {int(model.step.numpy())}", flush=True)
    print(f"{place.task_type} {place.task_id} of {strategy.num_replicas_in_sync} trains", flush=True)

    @tf.function
    def step(batch: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
        losses = strategy.run(model.learn, args=(batch, right))
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

    while (number := int(model.step.numpy())) < steps:
        rows = np.random.default_rng(number).integers(0, len(images), BATCH)
        loss = step(tf.constant(images[rows]), tf.constant(labels[rows]))
        if number % EVERY == 0 or number == steps - 1:
            print(f"step {number} loss {float(loss):.6f}", flush=True)
            with summaries.as_default():
                tf.summary.write("loss", loss, step=number, metadata=SCALAR)
            summaries.flush()
            manager.save()
    tf.saved_model.save(model, f"{mine}/model")
    print(f"saved the model after step {int(model.step.numpy())}", flush=True)


if __name__ == "__main__":
    try:
        train(sys.argv[1], int(sys.argv[2]))
    except PEER_LOST as error:
        print(f"lost a peer: {type(error).__name__}", flush=True)
        os._exit(1)  # TensorFlow threads may still wait for the lost worker
