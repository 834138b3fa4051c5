# A deployer's side: an App on each agent with a label.
terraform {
  required_providers {
    pipeops = { source = "pipeops/pipeops" }
  }
}

# PIPEOPS_RUNNER_CREDENTIALS names the file of `pipeops-controlplane runner create -o FILE`. In a CI
# job, the variables of `runner create --oidc-issuer` do instead.
provider "pipeops" {}

variable "image" {
  type = string
}

data "pipeops_agents" "shops" {
  selector = "env=prod"
}

resource "pipeops_app" "web" {
  for_each = toset(data.pipeops_agents.shops.agents[*].name)

  agent    = each.key
  name     = "web"
  image    = var.image
  replicas = 2
  spec = yamlencode({
    ports     = [{ port = 8080 }]
    probes    = { readiness = { http = { path = "/", port = 8080 } } }
    resources = { requests = { memory = "16Mi" }, limits = { memory = "64Mi" } }
  })

  timeouts = { create = "5m", update = "5m" }
}

output "urls" {
  value = { for agent, web in pipeops_app.web : agent => web.urls }
}
