"""A chief, workers and parameter servers with ParameterServerStrategy.

All replicas run this program, and read their role from TF_CONFIG, which the operator sets. Workers and parameter servers run
forever, and the chief assigns them work. When the chief exits, the job succeeds, and the operator deletes the others
(cleanPodPolicy Running).

    python parameter_server.py FOLDER EPOCHS      FOLDER is on a volume of the chief

A worker may fail at any time: the chief assigns its steps to another one. If a parameter server or the chief itself fails, the
chief restarts, and continues from the checkpoint of the last epoch.
"""

import sys

import numpy as np
import tensorflow as tf

CLASSES, PIXELS, BATCH, STEPS, RATE = 10, 28 * 28, 64, 20, 0.003


def digits(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Generated digits in MNIST's format: noisy copies of ten pictures."""
    pictures = np.random.default_rng(0).random((CLASSES, PIXELS), dtype=np.float32)
    random = np.random.default_rng(seed)
    labels = random.integers(0, CLASSES, count)
    return pictures[labels] + random.normal(0.0, 0.3, (count, PIXELS)).astype(np.float32), labels


def serve(place: tf.distribute.cluster_resolver.TFConfigClusterResolver) -> None:
    """Run a worker or a parameter server until the pod is deleted."""
    print(f"{place.task_type} {place.task_id} serves", flush=True)
    tf.distribute.Server(
        place.cluster_spec(), job_name=place.task_type, task_index=place.task_id, protocol="grpc", start=True
    ).join()


def coordinate(place: tf.distribute.cluster_resolver.TFConfigClusterResolver, folder: str, epochs: int) -> None:
    """Run the chief: it places variables on the parameter servers, and schedules steps on free workers."""
    strategy = tf.distribute.ParameterServerStrategy(place)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weights = tf.Variable(tf.zeros((PIXELS, CLASSES)))
        bias = tf.Variable(tf.zeros((CLASSES,)))
        epoch = tf.Variable(0, dtype=tf.int64)
    images, labels = digits(4096, seed=1)

    def loss_of(batch: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(right, batch @ weights + bias))

    @tf.function
    def step(batch: tf.Tensor, right: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = loss_of(batch, right)
        for variable, gradient in zip((weights, bias), tape.gradient(loss, (weights, bias)), strict=True):
            variable.assign_sub(RATE * gradient)

    # The chief writes the files, so that parameter servers need no volume.
    chief = tf.train.CheckpointOptions(experimental_io_device="/job:chief/task:0/device:CPU:0")
    saved = tf.train.Checkpoint(weights=weights, bias=bias, epoch=epoch)
    manager = tf.train.CheckpointManager(saved, f"{folder}/checkpoints", max_to_keep=2)
    if manager.latest_checkpoint is not None:
        saved.restore(manager.latest_checkpoint, options=chief).assert_existing_objects_matched()
        print(f"restored after epoch {int(epoch.numpy())}", flush=True)
    print(f"the weights are on {weights.device}", flush=True)
    for number in range(int(epoch.numpy()), epochs):
        for index in range(number * STEPS, (number + 1) * STEPS):
            rows = np.random.default_rng(index).integers(0, len(images), BATCH)
            coordinator.schedule(step, args=(tf.constant(images[rows]), tf.constant(labels[rows])))
        coordinator.join()
        print(f"epoch {number} loss {float(loss_of(tf.constant(images), tf.constant(labels))):.6f}", flush=True)
        epoch.assign_add(1)
        manager.save(checkpoint_number=number, options=chief)
    np.savez(f"{folder}/model.npz", weights=weights.numpy(), bias=bias.numpy())
    print(f"saved the model after epoch {epochs}", flush=True)


if __name__ == "__main__":
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type in {"worker", "ps"}:
        serve(resolver)
    else:
        coordinate(resolver, sys.argv[1], int(sys.argv[2]))
