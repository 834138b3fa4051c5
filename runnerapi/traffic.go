package runnerapi

import "time"

// TrafficOptions select the figures of an App's public requests.
type TrafficOptions struct {
	Since time.Duration // an hour, or a day; an hour if zero
}

// Traffic is what visitors of an App's public hosts requested, as the agent has counted it.
type Traffic struct {
	Namespace  string         `json:"namespace"`
	Name       string         `json:"name"`
	Start      time.Time      `json:"start" doc:"When the first step began. The agent counts nothing while it does not run."`
	End        time.Time      `json:"end" doc:"Now: the last step is not over yet."`
	Step       string         `json:"step" enum:"1m0s,1h0m0s" doc:"Time that one point covers."`
	Hosts      []HostTraffic  `json:"hosts" nullable:"false" doc:"By host. Hosts of which the App has a route are there without requests too."`
	Points     []TrafficPoint `json:"points" nullable:"false" doc:"One for each step from start to end, as the sum of all hosts."`
	Incomplete string         `json:"incomplete,omitempty" doc:"Why the requests of other replicas, or of the time before this one began, are left out."`
}

// HostTraffic are the figures of one host of an App.
type HostTraffic struct {
	Host     string           `json:"host" example:"shop.example.com"`
	Mode     RouteMode        `json:"mode,omitempty" enum:"tunnel,direct" doc:"How requests come now. What comes direct does not pass the agent, and is not counted. Absent for a host of which the App has no route any more, or if it is not known."`
	Counted  bool             `json:"counted" doc:"False for a host that the agent does not count, because it counts 500 others."`
	Requests int64            `json:"requests" doc:"Requests that got a response, of the App or of the agent."`
	Errors   int64            `json:"errors" doc:"Those with a status of 500 or more."`
	Statuses StatusCounts     `json:"statuses"`
	Failed   map[string]int64 `json:"failed,omitempty" doc:"How many the agent itself has responded to, by reason: ambiguous, not-ready, unreachable, timed-out, busy, denied, unauthorized, too-many, too-large, sign-in, token-wanted, sign-in-failed, not-admitted, provider-away, no-backend, or other."`
	Received int64            `json:"receivedBytes" doc:"Bytes of the bodies of requests."`
	Sent     int64            `json:"sentBytes" doc:"Bytes of the bodies of responses. Those of a stream are counted when it ends."`
	Latency  *Latency         `json:"latencyMillis,omitempty" doc:"Time until the App began its response. Absent without a request that reached the App."`
}

// StatusCounts are numbers of requests by class of status.
type StatusCounts struct {
	Informational int64 `json:"1xx" doc:"101 of WebSockets too."`
	Successful    int64 `json:"2xx"`
	Redirection   int64 `json:"3xx"`
	ClientError   int64 `json:"4xx"`
	ServerError   int64 `json:"5xx"`
}

// Latency are quantiles, in milliseconds. They are interpolated between the bounds of a histogram.
type Latency struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
}

// TrafficPoint are the figures of all hosts of an App in one step.
type TrafficPoint struct {
	Requests int64    `json:"requests"`
	Errors   int64    `json:"errors"`
	P95      *float64 `json:"p95Millis,omitempty" doc:"Absent without a request that reached the App."`
}

// AccessEntry is a request of a visitor, in an App's access log. Its texts are cut, and have no
// control characters.
type AccessEntry struct {
	RequestID      string  `json:"requestId,omitempty"`
	Host           string  `json:"host"`
	Method         string  `json:"method"`
	Path           string  `json:"path" doc:"As it was sent, without the query, which may have secrets."`
	Status         int     `json:"status"`
	Failed         string  `json:"failed,omitempty" doc:"Why the agent itself has responded, such as timed-out."`
	Received       int64   `json:"receivedBytes"`
	Sent           int64   `json:"sentBytes"`
	DurationMillis float64 `json:"durationMillis" doc:"Time until the response had ended."`
	Address        string  `json:"address,omitempty" doc:"The visitor's address, as the gateway has seen it."`
	UserAgent      string  `json:"userAgent,omitempty"`
}
