# An operator's side: how a machine joins, who deploys, and who hears of failures.
terraform {
  required_providers {
    pipeops = { source = "pipeops/pipeops" }
  }
}

# PIPEOPS_OPERATOR_CREDENTIALS names the file of `pipeops-controlplane operator create -o FILE`.
provider "pipeops" {}

variable "webhook_url" {
  type      = string
  sensitive = true
}

resource "pipeops_token" "shops" {
  name   = "shops"
  labels = { env = "prod" }
  uses   = 1
  ttl    = "24h"
}

# Jobs of GitHub Actions deploy with it, and no secret is stored.
resource "pipeops_runner" "ci" {
  name   = "ci"
  agents = "env=prod"
  openid = {
    issuer = "https://token.actions.githubusercontent.com"
    claims = { repository = "shop/web", environment = "prod" }
  }
}

resource "pipeops_webhook" "failures" {
  name  = "failures"
  url   = var.webhook_url
  types = ["app.failed"]
}

# For user data of a new machine.
output "token" {
  value     = pipeops_token.shops.token
  sensitive = true
}

# Variables of the CI system.
output "ci" {
  value = {
    PIPEOPS_RUNNER            = pipeops_runner.ci.name
    PIPEOPS_CONTROL_PLANE_URL = pipeops_runner.ci.control_plane_url
    PIPEOPS_CA_FINGERPRINT    = pipeops_runner.ci.ca_fingerprint
  }
}
