"""Programs that run in the environment of an SDK. They import nothing of this project except `steps` and each other."""
