package runnerapi

import "time"

// Autoscaling lets the load decide the number of pods.
//
// +kubebuilder:object:generate=true
type Autoscaling struct {
	Min           int32 `json:"min" minimum:"1" maximum:"1000" doc:"Fewest pods."`
	Max           int32 `json:"max" minimum:"1" maximum:"1000" doc:"Most pods."`
	CPUPercent    int32 `json:"cpuPercent,omitempty" minimum:"1" maximum:"1000" doc:"Usage of the requested CPU to aim at, over all pods; 80 when neither this nor memoryPercent is given."`
	MemoryPercent int32 `json:"memoryPercent,omitempty" minimum:"1" maximum:"1000" doc:"Usage of the requested memory to aim at, over all pods."`
}

// Schedule says when a CronJob runs.
//
// +kubebuilder:object:generate=true
type Schedule struct {
	Cron                    string `json:"cron" maxLength:"128" pattern:"^(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|[0-9A-Za-z*,/?-]+( +[0-9A-Za-z*,/?-]+){4})$" doc:"Minute, hour, day of the month, month, day of the week." example:"15 3 * * *"`
	TimeZone                string `json:"timeZone,omitempty" maxLength:"64" pattern:"^[A-Za-z][A-Za-z0-9_+/-]*$" doc:"Time zone of the schedule; UTC when absent." example:"Europe/Berlin"`
	Concurrency             string `json:"concurrency,omitempty" enum:"Allow,Forbid,Replace" default:"Forbid" doc:"What happens when a run is due while the one before continues."`
	StartingDeadlineSeconds *int64 `json:"startingDeadlineSeconds,omitempty" minimum:"10" maximum:"86400" doc:"How late a run may start before it is skipped; 3600 when absent."`
	Suspended               bool   `json:"suspended,omitempty" doc:"Start no further runs."`
}

// JobOptions say how a Job, each run of a CronJob, or each job of a Pipeline, is tried.
//
// +kubebuilder:object:generate=true
type JobOptions struct {
	Retries         *int32 `json:"retries,omitempty" minimum:"0" maximum:"100" doc:"How often a failed pod is tried again, ever later; 3 when absent."`
	DeadlineSeconds *int64 `json:"deadlineSeconds,omitempty" minimum:"1" maximum:"2592000" doc:"When all tries together are given up."`
	TTLSeconds      *int32 `json:"ttlSeconds,omitempty" minimum:"0" maximum:"31536000" doc:"When the pods of a finished run are deleted, and their logs with them. The outcome stays in the App's status. Kept when absent; of a CronJob the last three."`
	Completions     int32  `json:"completions,omitempty" minimum:"1" maximum:"10000" doc:"Pods that have to succeed; 1 when absent."`
	Parallelism     int32  `json:"parallelism,omitempty" minimum:"1" maximum:"1000" doc:"Pods at a time; 1 when absent."`
	Run             string `json:"run,omitempty" maxLength:"128" pattern:"^[A-Za-z0-9._:-]+$" doc:"Names the run of a Job or Pipeline. Under another name the same spec runs again; under the same it does not." example:"build-1742"`
}

// Ingress makes the App reachable from outside: by the control plane's gateway, or by an ingress
// controller of the cluster.
//
// +kubebuilder:object:generate=true
type Ingress struct {
	Class       string            `json:"class,omitempty" maxLength:"253" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$" doc:"Name of the IngressClass; the cluster's default when absent."`
	Public      bool              `json:"public,omitempty" doc:"Serves the App at a host of its own below the domain of the control plane's gateway, over HTTPS. status.publicUrls lists it."`
	Hosts       []IngressHost     `json:"hosts,omitempty" maxItems:"32" doc:"Hosts of yours; without public, at least one."`
	Annotations map[string]string `json:"annotations,omitempty" maxProperties:"32" doc:"For the ingress controller, or for who makes the certificates."`
	Ports       []IngressPort     `json:"ports,omitempty" maxItems:"16" doc:"Ports of the control plane's gateway that lead to ports of the App, for what is not HTTP. status.publicUrls lists them."`
	Visitors    *Visitors         `json:"visitors,omitempty" doc:"Whom the gateway lets in. With it, the gateway alone serves the App: its hosts have no Ingress, because an ingress controller would let in everyone."`
}

// Visitors is what visitors must meet, all of it.
//
// +kubebuilder:object:generate=true
type Visitors struct {
	AllowFrom           []string `json:"allowFrom,omitempty" maxItems:"64" maxLength:"43" doc:"Addresses, and networks in CIDR form, from which visitors are let in; from everywhere when absent."`
	BasicAuthSecret     string   `json:"basicAuthSecret,omitempty" maxLength:"253" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$" doc:"Secret whose key auth is a file as htpasswd writes it. Visitors sign in by HTTP basic authentication. The App gets the user's name as X-Forwarded-User, and no password."`
	SignIn              *SignIn  `json:"signIn,omitempty" doc:"Visitors sign in with a browser, at an identity provider that speaks OpenID Connect."`
	ServiceTokensSecret string   `json:"serviceTokensSecret,omitempty" maxLength:"253" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$" doc:"Secret with tokens for clients without a browser: each key is a client's name, each value a token of 32 to 1024 characters, sent in the header Pipeops-Service-Token. With signIn, either lets in."`
	RequestsPerSecond   int32    `json:"requestsPerSecond,omitempty" minimum:"1" maximum:"100000" doc:"Of each address, with bursts of five times as many; unlimited when absent."`
	MaxBodyBytes        int64    `json:"maxBodyBytes,omitempty" minimum:"1" maximum:"1099511627776" doc:"Largest body of a request; unlimited when absent."`
}

// SignIn is where visitors sign in, and who of them is let in: a person with one of the emails or
// one of the groups.
//
// +kubebuilder:object:generate=true
type SignIn struct {
	Secret string   `json:"secret,omitempty" maxLength:"253" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$" doc:"Secret of the identity provider, with the keys issuer, client-id and client-secret, and if need be ca.crt and groups-claim. The control plane's own provider when absent."`
	Emails []string `json:"emails,omitempty" maxItems:"32" maxLength:"254" doc:"Addresses that the provider has verified; *@DOMAIN is all of a domain, and * everyone whom the provider knows." example:"[\"*@example.com\"]"`
	Groups []string `json:"groups,omitempty" maxItems:"32" maxLength:"100" doc:"Names of the provider's groups, of its claim groups."`
}

// IngressPort is a port of the control plane's gateway.
//
// +kubebuilder:object:generate=true
type IngressPort struct {
	Port          int32    `json:"port" minimum:"1" maximum:"65535" doc:"Port of the App's Service."`
	Protocol      string   `json:"protocol,omitempty" enum:"TCP,UDP" default:"TCP"`
	PublicPort    int32    `json:"publicPort,omitempty" minimum:"1" maximum:"65535" doc:"Port of the gateway, of those that its operator has opened. The control plane chooses one when absent, and keeps it."`
	AllowFrom     []string `json:"allowFrom,omitempty" maxItems:"64" maxLength:"43" doc:"Addresses, and networks in CIDR form, from which visitors are let in; those of visitors when absent."`
	ProxyProtocol bool     `json:"proxyProtocol,omitempty" doc:"Begins each connection with a header of the PROXY protocol, version 2, which has the visitor's address. Not with UDP."`
	IdleSeconds   int32    `json:"idleSeconds,omitempty" minimum:"1" maximum:"86400" doc:"How long a connection may have nothing to say; 3600 when absent. A flow of UDP, which is of one address and port, ends after 60."`
}

// IngressHost is one host name, or a path of it.
//
// +kubebuilder:object:generate=true
type IngressHost struct {
	Host        string `json:"host" minLength:"1" maxLength:"253" pattern:"^(\\*\\.)?[a-z0-9]([a-z0-9-]*[a-z0-9])?(\\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$" example:"shop.example.com"`
	Path        string `json:"path,omitempty" maxLength:"1024" pattern:"^/" default:"/" doc:"Everything below this path."`
	Port        int32  `json:"port,omitempty" minimum:"1" maximum:"65535" doc:"Port of the App's Service; that of the first TCP port when absent."`
	TLSSecret   string `json:"tlsSecret,omitempty" maxLength:"253" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$" doc:"Name of a TLS secret with the host's certificate; without it the host is served over HTTP alone."`
	Passthrough bool   `json:"passthrough,omitempty" doc:"Connections to the host reach the App with their TLS: the gateway chooses the App by the server name, and has no certificate of the host. The host has no Ingress. Of visitors, allowFrom and requestsPerSecond hold, the latter for new connections."`
}

// Update says how new pods take the place of old ones.
//
// +kubebuilder:object:generate=true
type Update struct {
	Strategy       string `json:"strategy,omitempty" enum:"RollingUpdate,Recreate" default:"RollingUpdate" doc:"Recreate stops all pods of a Deployment first: for what cannot run twice."`
	MaxUnavailable string `json:"maxUnavailable,omitempty" maxLength:"5" pattern:"^([0-9]{1,4}|[1-9]?[0-9]%|100%)$" doc:"Pods that may be missing meanwhile, as a number or a percentage; none of a Deployment, one otherwise."`
	MaxSurge       string `json:"maxSurge,omitempty" maxLength:"5" pattern:"^([0-9]{1,4}|[1-9]?[0-9]%|100%)$" doc:"Pods there may be beside those asked for, as a number or a percentage; 25% of a Deployment, none otherwise."`
}

// Disruption bounds how many pods a node drain may take at a time. Exactly one
// of MinAvailable and MaxUnavailable must be set.
//
// +kubebuilder:object:generate=true
type Disruption struct {
	MinAvailable   string `json:"minAvailable,omitempty" maxLength:"5" pattern:"^([0-9]{1,4}|[1-9]?[0-9]%|100%)$" doc:"Pods that have to stay, as a number or a percentage."`
	MaxUnavailable string `json:"maxUnavailable,omitempty" maxLength:"5" pattern:"^([0-9]{1,4}|[1-9]?[0-9]%|100%)$" doc:"Pods that may be missing, as a number or a percentage."`
}

// RunOutcome is how a run stands.
type RunOutcome string

// The outcomes of a run.
const (
	RunRunning   RunOutcome = "Running"
	RunSucceeded RunOutcome = "Succeeded"
	RunFailed    RunOutcome = "Failed"
)

// Run is one run of a Job or CronJob.
type Run struct {
	Name       string     `json:"name" doc:"Name of the Kubernetes Job."`
	Outcome    RunOutcome `json:"outcome" enum:"Running,Succeeded,Failed"`
	StartedAt  time.Time  `json:"startedAt"`
	FinishedAt *time.Time `json:"finishedAt,omitempty"`
	Tries      int32      `json:"tries,omitempty" doc:"Pods that have come to their end so far, or run now."`
	ExitCode   *int32     `json:"exitCode,omitempty" doc:"Of the container that ended last."`
}
