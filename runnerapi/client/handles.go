package client

// Apps returns the calls about Apps, with what runs in their pods.
func (c *Client) Apps() Apps { return Apps{c.core} }

// Jobs returns the calls about what runs once, to its end.
func (c *Client) Jobs() Jobs { return Jobs{c.core} }

// Pipelines returns the calls about jobs that run one after another.
func (c *Client) Pipelines() Pipelines { return Pipelines{c.core} }

// Secrets returns the calls about the Secrets that the agent manages.
func (c *Client) Secrets() Secrets { return Secrets{c.core} }

// ConfigMaps returns the calls about the ConfigMaps that the agent manages.
func (c *Client) ConfigMaps() ConfigMaps { return ConfigMaps{c.core} }

// Namespaces returns the calls about managed namespaces.
func (c *Client) Namespaces() Namespaces { return Namespaces{c.core} }

// Manifests returns the calls about sets of manifests, as kubectl apply --applyset has them.
func (c *Client) Manifests() Manifests { return Manifests{c.core} }

// Releases returns the calls about releases of Helm charts.
func (c *Client) Releases() Releases { return Releases{c.core} }

// Sources returns the calls about Git repositories that the agent follows.
func (c *Client) Sources() Sources { return Sources{c.core} }

// Builds returns the calls about images that the agent builds.
func (c *Client) Builds() Builds { return Builds{c.core} }

// Nodes returns the calls about the nodes of the cluster, and about how a machine becomes one.
func (c *Client) Nodes() Nodes { return Nodes{c.core} }

// Cluster returns the calls about the cluster as a whole.
func (c *Client) Cluster() Cluster { return Cluster{c.core} }

// Events returns the calls about Kubernetes' events.
func (c *Client) Events() Events { return Events{c.core} }

// Routes returns the calls about hosts that the public can reach.
func (c *Client) Routes() Routes { return Routes{c.core} }

// Monitoring returns the calls about what Apps use and cost, and what is wrong in the cluster.
func (c *Client) Monitoring() Monitoring { return Monitoring{c.core} }

// Operations returns the calls about commands that were accepted.
func (c *Client) Operations() Operations { return Operations{c.core} }

// Audit returns the calls about what Runners did.
func (c *Client) Audit() Audit { return Audit{c.core} }

// Kubernetes returns the calls about the Kubernetes API, to which kubectl and client-go connect.
func (c *Client) Kubernetes() Kubernetes { return Kubernetes{c.core} }
