package components

// table names each component's charts. Their digests are in digests.yaml, which
// `make pin-charts` writes.
var table = []Component{
	{
		// First: others want volumes.
		Name: "storage", What: "a default StorageClass: volumes in a directory of the node", Namespace: "local-path-storage",
		Charts:  []Chart{{Name: "local-path-provisioner", Version: "1.0.0"}},
		present: func(c Cluster) string { return first("the default StorageClass", c.DefaultStorageClasses) },
	},
	{
		Name: "cert-manager", What: "certificates as Kubernetes objects", Namespace: "cert-manager",
		Charts:  []Chart{{Repository: "https://charts.jetstack.io", Name: "cert-manager", Version: "v1.21.1"}},
		present: apiGroup("cert-manager.io"),
	},
	{
		Name: "ingress", What: "an ingress controller: F5's NGINX", Namespace: "nginx-ingress",
		Charts:  []Chart{{Repository: "https://helm.nginx.com/stable", Name: "nginx-ingress", Version: "2.7.0"}},
		present: func(c Cluster) string { return first("IngressClass", c.IngressClasses) },
	},
	{
		Name: "vpa", What: "recommendations of CPU and memory", Namespace: "vpa",
		Charts:  []Chart{{Repository: "https://kubernetes.github.io/autoscaler", Name: "vertical-pod-autoscaler", Version: "0.11.0"}},
		present: apiGroup("autoscaling.k8s.io"),
	},
	{
		Name: "prometheus", What: "metrics of nodes, pods and Apps, and alerts", Namespace: namespaceMonitoring, Monitoring: true,
		Charts:  []Chart{{Repository: "https://prometheus-community.github.io/helm-charts", Name: "prometheus", Version: "29.27.0"}},
		present: either(apiGroup("monitoring.coreos.com"), service("prometheus")),
	},
	{
		Name: "loki", What: "logs of pods, also of those that are gone", Namespace: namespaceMonitoring, Monitoring: true,
		Charts: []Chart{
			{Repository: "https://grafana.github.io/helm-charts", Name: "loki", Version: "18.11.0"},
			{Repository: "https://grafana.github.io/helm-charts", Name: "alloy", Version: "1.11.1"},
		},
		present: service("loki"),
	},
	{
		Name: "grafana", What: "dashboards", Namespace: namespaceMonitoring, Monitoring: true,
		Charts: []Chart{
			{Repository: "https://grafana.github.io/helm-charts", Name: "grafana", Version: "12.11.1"},
			{Name: "pipeops-dashboards", Version: "1.0.0"},
		},
		present: service("grafana"),
	},
	{
		Name: "opencost", What: "costs by namespace and App", Namespace: namespaceMonitoring, Monitoring: true,
		Charts:  []Chart{{Repository: "https://opencost.github.io/opencost-helm-chart", Name: "opencost", Version: "2.5.17"}},
		present: service("opencost"),
	},
	{
		Name: "istio", What: "a service mesh", Namespace: namespaceIstio, Asked: true,
		Charts: []Chart{
			{Repository: "https://istio-release.storage.googleapis.com/charts", Name: "base", Version: "1.30.0"},
			{Repository: "https://istio-release.storage.googleapis.com/charts", Name: "istiod", Version: "1.30.0"},
		},
		present: apiGroup("networking.istio.io"),
	},
	{
		// Last: until its pod runs, discovery of its API fails.
		Name: "metrics-server", What: "current CPU and memory of pods, for kubectl top and autoscalers", Namespace: "kube-system",
		Charts:  []Chart{{Repository: "https://kubernetes-sigs.github.io/metrics-server", Name: "metrics-server", Version: "3.13.1"}},
		present: apiGroup("metrics.k8s.io"),
	},
}

func apiGroup(name string) func(Cluster) string {
	return func(c Cluster) string {
		if c.APIGroups[name] {
			return "the API " + name
		}
		return ""
	}
}

// service looks for a Service with the label that charts give it. Some components have no API of
// their own by which they could be found.
func service(name string) func(Cluster) string {
	return func(c Cluster) string { return first("Service", c.Services[name]) }
}

func first(kind string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	return kind + " " + names[0]
}

func either(a, b func(Cluster) string) func(Cluster) string {
	return func(c Cluster) string {
		if found := a(c); found != "" {
			return found
		}
		return b(c)
	}
}
