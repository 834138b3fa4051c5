package runnerapi
