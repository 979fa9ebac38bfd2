"""TensorBoard beside a job: a Deployment and a Service that live as long as the job object does.

A controller of its own: it reads the job's specification and nothing else of the job, and never writes to it. So whatever goes
wrong here leads to a Warning on the job and nothing else. Its informers of Deployments and Services exist only once some job
wants a TensorBoard.
"""
