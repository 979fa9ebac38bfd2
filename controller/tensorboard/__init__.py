"""TensorBoard for jobs: a Deployment and a Service that exist as long as the job object.

A separate controller: it only reads the job's spec and never writes to the job, so failures here only cause Warnings on the
job. Its informers of Deployments and Services exist only once a job requests a TensorBoard.
"""
