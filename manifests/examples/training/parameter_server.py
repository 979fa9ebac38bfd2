"""A chief, workers and parameter servers with ParameterServerStrategy.

All replicas run this program, and read their role from TF_CONFIG, which the operator sets. Workers and parameter servers run
forever, and the chief assigns them work. When the chief exits, the job succeeds, and the operator deletes the others
(cleanPodPolicy Running).

    python parameter_server.py FOLDER STEPS      FOLDER is where the chief saves the model
"""

import os
import sys

import numpy as np
import tensorflow as tf

CLASSES, PIXELS, BATCH, RATE = 10, 28 * 28, 64, 0.003


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


def coordinate(place: tf.distribute.cluster_resolver.TFConfigClusterResolver, folder: str, steps: int) -> None:
    """Run the chief: it places variables on the parameter servers, and schedules steps on free workers."""
    strategy = tf.distribute.ParameterServerStrategy(place)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weights = tf.Variable(tf.zeros((PIXELS, CLASSES)))
        bias = tf.Variable(tf.zeros((CLASSES,)))
    images, labels = digits(4096, seed=1)

    @tf.function
    def step(batch: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(right, batch @ weights + bias)
            loss = tf.reduce_mean(losses)
        for variable, gradient in zip((weights, bias), tape.gradient(loss, (weights, bias)), strict=True):
            variable.assign_sub(RATE * gradient)
        return loss

    print(f"the weights are on {weights.device}", flush=True)
    for number in range(steps):
        rows = np.random.default_rng(number).integers(0, len(images), BATCH)
        loss = coordinator.schedule(step, args=(tf.constant(images[rows]), tf.constant(labels[rows])))
        if number % 20 == 0 or number == steps - 1:
            coordinator.join()
            print(f"step {number} loss {float(loss.fetch()):.4f}", flush=True)
    os.makedirs(folder, exist_ok=True)
    np.savez(f"{folder}/model.npz", weights=weights.numpy(), bias=bias.numpy())
    print(f"saved the model after step {steps}", flush=True)


if __name__ == "__main__":
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type in {"worker", "ps"}:
        serve(resolver)
    else:
        coordinate(resolver, sys.argv[1], int(sys.argv[2]))
