package runnertest

import (
	"maps"
	"strings"
)

// BadSpec is a spec, as JSON without its image, and the text of its refusal. "Duplicate value" is
// the cluster's own text for a key that occurs twice.
type BadSpec struct{ JSON, Field, Message string }

// BadSpecs returns specs that both the API and the cluster refuse.
func BadSpecs() map[string]BadSpec {
	all := map[string]BadSpec{}
	for _, some := range []map[string]BadSpec{badContainers, badWorkloads, badTraffic, badUpdates, badMounts, badPods} {
		maps.Copy(all, some)
	}
	return all
}

var badContainers = map[string]BadSpec{
	"two sources of a variable": {`{"env":[{"name":"A","value":"1","secret":{"name":"s","key":"k"}}]}`, "env[0]", "exactly one of value, secret and configMap"},
	"a variable twice":          {`{"env":[{"name":"A"},{"name":"A"}]}`, "env[1].name", "Duplicate value"},
	"no source of variables":    {`{"envFrom":[{"prefix":"A_"}]}`, "envFrom[0]", "exactly one of secret and configMap"},
	"two sources of variables":  {`{"envFrom":[{"secret":"s","configMap":"c"}]}`, "envFrom[0]", "exactly one of secret and configMap"},
	"a probe of nothing":        {`{"probes":{"liveness":{"periodSeconds":3}}}`, "probes.liveness", "exactly one of http, tcp and exec"},
	"a probe of two":            {`{"probes":{"readiness":{"tcp":{"port":1},"exec":["true"]}}}`, "probes.readiness", "exactly one of http, tcp and exec"},
	"request above limit":       {`{"resources":{"requests":{"memory":"1Gi"},"limits":{"memory":"1000Mi"}}}`, "resources.requests.memory", "the request is more than the limit"},
	"cpu above limit":           {`{"resources":{"requests":{"cpu":"1.5"},"limits":{"cpu":"1499m"}}}`, "resources.requests.cpu", "the request is more than the limit"},
	"an init container's request above limit": {
		`{"initContainers":[{"name":"i","resources":{"requests":{"cpu":"2"},"limits":{"cpu":"1"}}}]}`, "initContainers[0].resources.requests.cpu", "the request is more than the limit",
	},
	"an init container twice": {`{"initContainers":[{"name":"i"},{"name":"i"}]}`, "initContainers[1].name", "Duplicate value"},
	"an init container of the App's name": {
		`{"initContainers":[{"name":"web"}]}`, "initContainers[0].name", "may not have the App's name",
	},
	"an init container's variable of two sources": {
		`{"initContainers":[{"name":"i","env":[{"name":"A","value":"1","secret":{"name":"s","key":"k"}}]}]}`, "initContainers[0].env[0]", "exactly one of value, secret and configMap",
	},
	"a secret that cannot be": {`{"env":[{"name":"A","secret":{"name":"S_","key":"k"}}]}`, "env[0].secret.name", ""},
	"a key that cannot be":    {`{"env":[{"name":"A","secret":{"name":"s","key":"k k"}}]}`, "env[0].secret.key", ""},
	"a pull secret that cannot be": {
		`{"imagePullSecrets":["../x"]}`, "imagePullSecrets[0]", "",
	},
}

var badWorkloads = map[string]BadSpec{
	"metrics of a Job":          {`{"type":"Job","metrics":{"port":9090}}`, "metrics", "does not scrape a Job"},
	"no such type":              {`{"type":"Pod"}`, "type", ""},
	"too many pods":             {`{"replicas":1001}`, "replicas", ""},
	"autoscaling of a Job":      {`{"type":"Job","autoscaling":{"min":1,"max":2}}`, "autoscaling", "only a Deployment or StatefulSet scales"},
	"bounds the wrong way":      {`{"autoscaling":{"min":3,"max":2}}`, "autoscaling.min", "min is more than max"},
	"half a bound":              {`{"autoscaling":{"min":3}}`, "autoscaling.max", ""},
	"a CronJob without a time":  {`{"type":"CronJob"}`, "schedule", "a CronJob needs a schedule"},
	"a Deployment with a time":  {`{"schedule":{"cron":"@daily"}}`, "schedule", "a CronJob needs a schedule"},
	"no schedule":               {`{"type":"CronJob","schedule":{"cron":"soon"}}`, "schedule.cron", ""},
	"jobs of a Deployment":      {`{"jobs":[{"name":"a"}]}`, "jobs", "a Pipeline needs jobs"},
	"a Pipeline of nothing":     {`{"type":"Pipeline"}`, "jobs", "a Pipeline needs jobs"},
	"a Pipeline's command":      {`{"type":"Pipeline","jobs":[{"name":"a"}],"args":["x"]}`, "command", "of its own"},
	"a Pipeline in parallel":    {`{"type":"Pipeline","jobs":[{"name":"a"}],"job":{"parallelism":2}}`, "job.completions", "is one pod"},
	"variable of two of a job":  {`{"type":"Pipeline","jobs":[{"name":"a","env":[{"name":"A","value":"b","secret":{"name":"s","key":"k"}}]}]}`, "jobs[0].env[0]", "exactly one of value"},
	"source of two of a job":    {`{"type":"Pipeline","jobs":[{"name":"a","envFrom":[{"secret":"s","configMap":"c"}]}]}`, "jobs[0].envFrom[0]", "exactly one of secret"},
	"retries of a Deployment":   {`{"job":{"retries":3}}`, "job", "only a Job, CronJob or Pipeline"},
	"a Job with ports":          {`{"type":"Job","ports":[{"port":80}]}`, "ports", "serves nothing"},
	"a DaemonSet with a budget": {`{"type":"DaemonSet","disruption":{"maxUnavailable":"1"}}`, "disruption", "only a Deployment or StatefulSet"},
	"a StatefulSet's deadline":  {`{"type":"StatefulSet","progressDeadlineSeconds":60}`, "progressDeadlineSeconds", "only a Deployment has"},
	"a deadline too soon":       {`{"progressDeadlineSeconds":9}`, "progressDeadlineSeconds", ""},
	"a budget of nothing":       {`{"disruption":{}}`, "disruption", "exactly one of minAvailable and maxUnavailable"},
	"a budget of two":           {`{"disruption":{"minAvailable":"1","maxUnavailable":"1"}}`, "disruption", "exactly one of minAvailable and maxUnavailable"},
	"a budget of words":         {`{"disruption":{"minAvailable":"most"}}`, "disruption.minAvailable", ""},
}

var badTraffic = map[string]BadSpec{
	"ports without names":     {`{"ports":[{"name":"a","port":80},{"port":81}]}`, "ports[1].name", "every port needs a name"},
	"a port's name twice":     {`{"ports":[{"name":"a","port":80},{"name":"a","port":81}]}`, "ports[1].name", "is the name of another port"},
	"a port twice":            {`{"ports":[{"name":"a","port":80,"service":1},{"name":"b","port":80}]}`, "ports[1].port", "is there twice"},
	"a service port twice":    {`{"ports":[{"name":"a","port":80},{"name":"b","port":81,"service":80}]}`, "ports[1].service", "is there twice"},
	"a port too high":         {`{"ports":[{"port":70000}]}`, "ports[0].port", ""},
	"an ingress to nowhere":   {`{"ingress":{"hosts":[{"host":"a.example.com"}]}}`, "ingress", "an ingress needs a TCP port"},
	"an ingress to UDP":       {`{"ports":[{"port":53,"protocol":"UDP"}],"ingress":{"hosts":[{"host":"a.example.com"}]}}`, "ingress", "an ingress needs a TCP port"},
	"an ingress to no port":   {`{"ports":[{"port":80}],"ingress":{"hosts":[{"host":"a.example.com","port":81}]}}`, "ingress.hosts", "none of the App's TCP ports"},
	"a host twice":            {`{"ports":[{"port":80}],"ingress":{"hosts":[{"host":"a.example.com"},{"host":"a.example.com","path":"/"}]}}`, "ingress.hosts", "is there twice"},
	"an ingress without host": {`{"ports":[{"port":80}],"ingress":{"hosts":[]}}`, "ingress.hosts", "an ingress needs a host"},
	"an empty ingress":        {`{"ports":[{"port":80}],"ingress":{"class":"nginx"}}`, "ingress.hosts", "an ingress needs a host"},
	"public with no port":     {`{"ingress":{"public":true}}`, "ingress", "an ingress needs a TCP port"},
	"public maybe":            {`{"ports":[{"port":80}],"ingress":{"public":"maybe"}}`, "ingress.public", ""},
	"a public port of none":   {`{"ports":[{"port":80}],"ingress":{"ports":[{"port":5432}]}}`, "ingress.ports", "none of the App's ports of that protocol"},
	"a public port to UDP":    {`{"ports":[{"name":"web","port":80},{"name":"dns","port":53,"protocol":"UDP"}],"ingress":{"ports":[{"port":53}]}}`, "ingress.ports", "none of the App's ports of that protocol"},
	"a UDP port of none":      {`{"ports":[{"port":80}],"ingress":{"ports":[{"port":80,"protocol":"UDP"}]}}`, "ingress.ports", "none of the App's ports of that protocol"},
	"a UDP port's header":     {`{"ports":[{"port":53,"protocol":"UDP"}],"ingress":{"ports":[{"port":53,"protocol":"UDP","proxyProtocol":true}]}}`, "ingress.ports", "no proxyProtocol with UDP"},
	"a UDP port and public":   {`{"ports":[{"port":53,"protocol":"UDP"}],"ingress":{"public":true,"ports":[{"port":53,"protocol":"UDP"}]}}`, "ingress", "an ingress needs a TCP port"},
	"a public port twice":     {`{"ports":[{"name":"a","port":80},{"name":"b","port":81}],"ingress":{"ports":[{"port":80,"publicPort":5432},{"port":81,"publicPort":5432}]}}`, "ingress.ports", "is there twice"},
	"an App's port twice":     {`{"ports":[{"port":80}],"ingress":{"ports":[{"port":80},{"port":80,"publicPort":5432}]}}`, "ingress.ports", "is there twice"},
	"a public port from afar": {`{"ports":[{"port":80}],"ingress":{"ports":[{"port":80,"allowFrom":["office"]}]}}`, "ingress.ports", "neither an IP address nor a network"},
	"a public port too high":  {`{"ports":[{"port":80}],"ingress":{"ports":[{"port":80,"publicPort":70000}]}}`, "ingress.ports[0].publicPort", ""},
	"a public port over SCTP": {`{"ports":[{"port":80}],"ingress":{"ports":[{"port":80,"protocol":"SCTP"}]}}`, "ingress.ports[0].protocol", ""},
	"visitors of no kind":     {`{"ports":[{"port":80}],"ingress":{"public":true,"visitors":{"allowFrom":[]}}}`, "ingress.visitors", "give allowFrom"},
	"two ways to sign in":     {`{"ports":[{"port":80}],"ingress":{"public":true,"visitors":{"basicAuthSecret":"users","signIn":{"emails":["*"]}}}}`, "ingress.visitors.basicAuthSecret", "other ways to sign in"},
	"a password or a token":   {`{"ports":[{"port":80}],"ingress":{"public":true,"visitors":{"basicAuthSecret":"users","serviceTokensSecret":"tokens"}}}`, "ingress.visitors.basicAuthSecret", "other ways to sign in"},
	"sign-in of no one":       {`{"ports":[{"port":80}],"ingress":{"public":true,"visitors":{"signIn":{"secret":"web","emails":[]}}}}`, "ingress.visitors.signIn", "give emails or groups"},
	"sign-in of no address":   {`{"ports":[{"port":80}],"ingress":{"public":true,"visitors":{"signIn":{"emails":["*@example.com","anna"]}}}}`, "ingress.visitors.signIn.emails", "neither an address"},
	"sign-in of a pattern":    {`{"ports":[{"port":80}],"ingress":{"public":true,"visitors":{"signIn":{"emails":["a*@example.com"]}}}}`, "ingress.visitors.signIn.emails", "neither an address"},
	"sign-in of all domains":  {`{"ports":[{"port":80}],"ingress":{"public":true,"visitors":{"signIn":{"emails":["anna@*"]}}}}`, "ingress.visitors.signIn.emails", "neither an address"},
	"sign-in of two domains":  {`{"ports":[{"port":80}],"ingress":{"public":true,"visitors":{"signIn":{"emails":["anna@a.example@b.example"]}}}}`, "ingress.visitors.signIn.emails", "neither an address"},
	"sign-in of two groups":   {`{"ports":[{"port":80}],"ingress":{"public":true,"visitors":{"signIn":{"groups":["shop,admins"]}}}}`, "ingress.visitors.signIn.groups", "has a comma"},
	"visitors from nowhere":   {`{"ports":[{"port":80}],"ingress":{"public":true,"visitors":{"allowFrom":["10.0.0.0/8","office"]}}}`, "ingress.visitors.allowFrom", "neither an IP address nor a network"},
	"visitors from a range":   {`{"ports":[{"port":80}],"ingress":{"public":true,"visitors":{"allowFrom":["10.0.0.0/33"]}}}`, "ingress.visitors.allowFrom", "neither an IP address nor a network"},
	"visitors from a zone":    {`{"ports":[{"port":80}],"ingress":{"public":true,"visitors":{"allowFrom":["fe80::1%eth0"]}}}`, "ingress.visitors.allowFrom", "neither an IP address nor a network"},
	"visitors in IPv6":        {`{"ports":[{"port":80}],"ingress":{"public":true,"visitors":{"allowFrom":["::ffff:10.0.0.1"]}}}`, "ingress.visitors.allowFrom", "neither an IP address nor a network"},
	"visitors of a class":     {`{"ports":[{"port":80}],"ingress":{"class":"nginx","public":true,"visitors":{"maxBodyBytes":1}}}`, "ingress.visitors", "leave out class and tlsSecret"},
	"visitors of a secret":    {`{"ports":[{"port":80}],"ingress":{"hosts":[{"host":"a.example.com","tlsSecret":"a"}],"visitors":{"maxBodyBytes":1}}}`, "ingress.visitors", "leave out class and tlsSecret"},
	"no host name":            {`{"ports":[{"port":80}],"ingress":{"hosts":[{"host":"a b"}]}}`, "ingress.hosts[0].host", ""},
	"an annotation of ours on the ingress": {
		`{"ports":[{"port":80}],"ingress":{"hosts":[{"host":"a.example.com"}],"annotations":{"pipeops.io/applied":"x"}}}`, "ingress.annotations", "one of the agent's own",
	},
}

var badUpdates = map[string]BadSpec{
	"an update of a Job":            {`{"type":"Job","update":{}}`, "update", "not updated but run again"},
	"a StatefulSet recreated":       {`{"type":"StatefulSet","update":{"strategy":"Recreate"}}`, "update.strategy", "only a Deployment can be recreated"},
	"recreated with a surge":        {`{"update":{"strategy":"Recreate","maxSurge":"1"}}`, "update.strategy", "only a Deployment can be recreated"},
	"a StatefulSet with a surge":    {`{"type":"StatefulSet","update":{"maxSurge":"1"}}`, "update", "replaced one at a time"},
	"an update that cannot":         {`{"update":{"maxSurge":"0"}}`, "update", "nothing could ever be replaced"},
	"a node update that cannot":     {`{"type":"DaemonSet","update":{"maxUnavailable":"0%"}}`, "update", "nothing could ever be replaced"},
	"a DaemonSet's update both way": {`{"type":"DaemonSet","update":{"maxUnavailable":"1","maxSurge":"1"}}`, "update", "either maxUnavailable or maxSurge"},
}

var badMounts = map[string]BadSpec{
	"a volume of nothing":     {`{"volumes":[{"name":"a","mountPath":"/a"}]}`, "volumes", "exactly one of emptyDir, claim and existingClaim"},
	"a volume of two":         {`{"volumes":[{"name":"a","mountPath":"/a","emptyDir":{},"existingClaim":"b"}]}`, "volumes", "exactly one of emptyDir, claim and existingClaim"},
	"a Deployment's claim":    {`{"volumes":[{"name":"a","mountPath":"/a","claim":{"size":"1Gi"}}]}`, "volumes", "only a StatefulSet has claims"},
	"a volume of ours":        {`{"volumes":[{"name":"pipeops-file-0","mountPath":"/a","emptyDir":{}}]}`, "volumes", "names that begin with pipeops-"},
	"a volume twice":          {`{"volumes":[{"name":"a","mountPath":"/a","emptyDir":{}},{"name":"a","mountPath":"/b","emptyDir":{}}]}`, "volumes[1].name", "Duplicate value"},
	"two volumes at one path": {`{"volumes":[{"name":"a","mountPath":"/a","emptyDir":{}},{"name":"b","mountPath":"/a","emptyDir":{}}]}`, "volumes", "mounted at the same path"},
	"a file where a volume is": {
		`{"volumes":[{"name":"a","mountPath":"/a","emptyDir":{}}],"files":[{"path":"/a","secret":{"name":"s"}}]}`, "volumes", "mounted at the same path",
	},
	"a file twice":              {`{"files":[{"path":"/a","secret":{"name":"s"}},{"path":"/a","secret":{"name":"t"}}]}`, "files[1].path", "Duplicate value"},
	"a file of nothing":         {`{"files":[{"path":"/a"}]}`, "files", "exactly one of secret and configMap"},
	"a file of two":             {`{"files":[{"path":"/a","secret":{"name":"s"},"configMap":{"name":"s"}}]}`, "files", "exactly one of secret and configMap"},
	"a relative path":           {`{"files":[{"path":"etc/a","secret":{"name":"s"}}]}`, "files[0].path", ""},
	"a size that is not a size": {`{"volumes":[{"name":"a","mountPath":"/a","emptyDir":{"size":"big"}}]}`, "volumes[0].emptyDir.size", ""},
}

var badPods = map[string]BadSpec{
	"a label of ours":           {`{"podLabels":{"pipeops.io/app":"other"}}`, "podLabels", "one of the agent's own"},
	"the label of who owns it":  {`{"podLabels":{"app.kubernetes.io/managed-by":"me"}}`, "podLabels", "one of the agent's own"},
	"a label that cannot be":    {`{"podLabels":{"a b":"c"}}`, "podLabels", "is not a Kubernetes label key"},
	"a label's value":           {`{"podLabels":{"a":"b c"}}`, "podLabels", "is not a Kubernetes label value"},
	"an annotation of ours":     {`{"podAnnotations":{"pipeops.io/restarted-at":"x"}}`, "podAnnotations", "one of the agent's own"},
	"root unasked":              {`{"security":{"runAsUser":0}}`, "security.runAsUser", "user 0 is root"},
	"a capability too many":     {`{"security":{"addCapabilities":["SYS_ADMIN"]}}`, "security.addCapabilities[0]", ""},
	"spread over no label":      {`{"spread":{"over":["a b"]}}`, "spread.over[0]", ""},
	"a node's label":            {`{"nodeSelector":{"a b":"c"}}`, "nodeSelector", "is not that of a Kubernetes label"},
	"a node's label's value":    {`{"nodeSelector":{"a":"b c"}}`, "nodeSelector", "is not that of a Kubernetes label"},
	"a device of no domain":     {`{"resources":{"devices":{"gpu":1}}}`, "resources.devices.gpu", "such as nvidia.com/gpu"},
	"a device of Kubernetes'":   {`{"initContainers":[{"name":"a","resources":{"devices":{"kubernetes.io/gpu":1}}}]}`, "initContainers[0].resources.devices.kubernetes.io/gpu", "such as nvidia.com/gpu"},
	"a device of no number":     {`{"resources":{"devices":{"nvidia.com/gpu":0}}}`, "resources.devices.nvidia.com/gpu", ""},
	"a device taken back":       {`{"resources":{"devices":{"nvidia.com/gpu":-1}}}`, "resources.devices.nvidia.com/gpu", ""},
	"devices beyond number":     {`{"resources":{"devices":{"nvidia.com/gpu":1000001}}}`, "resources.devices.nvidia.com/gpu", ""},
	"too many kinds of devices": {`{"resources":{"devices":{"a/a":1,"a/b":1,"a/c":1,"a/d":1,"a/e":1,"a/f":1,"a/g":1,"a/h":1,"a/i":1}}}`, "resources.devices", ""},
	"a taint of no key":         {`{"tolerations":[{"value":"a"}]}`, "tolerations", "operator Equal needs a key"},
	"any taint of a value":      {`{"tolerations":[{"operator":"Exists","value":"a"}]}`, "tolerations", "operator Exists takes no value"},
	"seconds without NoExecute": {`{"tolerations":[{"key":"a","tolerationSeconds":3}]}`, "tolerations", "needs effect NoExecute"},
	"a priority class's name":   {`{"priorityClassName":"A b"}`, "priorityClassName", ""},
	"a patch of no object":      {`{"patches":[{"target":{"kind":"Pod"},"patch":{"spec":{}}}]}`, "patches[0].target.kind", ""},
	"a patch of nothing":        {`{"patches":[{"patch":{}}]}`, "patches[0].patch", ""},
	"too many patches":          {`{"patches":[` + strings.Repeat(`{"patch":{"spec":{}}},`, 8) + `{"patch":{"spec":{}}}]}`, "patches", ""},
}

// GoodSpecs returns taken by the API and by the cluster alike.
func GoodSpecs() map[string]string {
	return map[string]string{
		"bare": `{}`,
		"whole": `{"replicas":0,"command":["/bin/web"],"args":["serve"],
			"ports":[{"name":"http","port":80,"service":8080},{"name":"dns","port":80,"protocol":"UDP"}],
			"env":[{"name":"A","value":"1"},{"name":"B","secret":{"name":"s","key":"k.1"}},{"name":"C"}],
			"envFrom":[{"secret":"s"},{"configMap":"c.d","prefix":"P_"}],
			"files":[{"path":"/etc/web/a.yaml","configMap":{"name":"c","key":"a.yaml"}},{"path":"/etc/certs","secret":{"name":"s"}}],
			"volumes":[{"name":"tmp","mountPath":"/tmp","emptyDir":{"memory":true,"size":"64Mi"}},{"name":"data","mountPath":"/data","existingClaim":"web-data","readOnly":true}],
			"resources":{"requests":{"cpu":"250m","memory":"64Mi"},"limits":{"cpu":"0.25","memory":"64Mi"}},
			"probes":{"startup":{"exec":["true"]},"readiness":{"http":{"port":80}},"liveness":{"tcp":{"port":80},"periodSeconds":3}},
			"initContainers":[{"name":"migrate","args":["migrate"],"env":[{"name":"A","value":"2"}],"resources":{"limits":{"cpu":"1"}}}],
			"ingress":{"class":"nginx","hosts":[{"host":"a.example.com","tlsSecret":"a-tls"},{"host":"a.example.com","path":"/api","port":8080},{"host":"*.example.com"}],
				"annotations":{"cert-manager.io/cluster-issuer":"le"}},
			"imagePullSecrets":["reg"],"autoscaling":{"min":2,"max":10,"cpuPercent":70,"memoryPercent":80},
			"update":{"maxUnavailable":"25%","maxSurge":"0"},"disruption":{"minAvailable":"50%"},
			"security":{"runAsUser":1000,"runAsGroup":1000,"fsGroup":1000,"readOnlyRootFilesystem":true,"addCapabilities":["NET_BIND_SERVICE"]},
			"serviceAccount":{"name":"web","token":true},"spread":{"when":"Required","over":["topology.kubernetes.io/zone"],"maxSkew":2},
			"terminationGraceSeconds":90,"progressDeadlineSeconds":120,"podLabels":{"team":"shop","example.com/tier":""},"podAnnotations":{"example.com/a":"true"},
			"nodeSelector":{"kubernetes.io/arch":"arm64"},"tolerations":[{"key":"gpu","value":"yes","effect":"NoExecute","tolerationSeconds":60},{"operator":"Exists"}],"priorityClassName":"high","patches":[{"target":{"kind":"Deployment"},"patch":{"spec":{"template":{"spec":{"hostAliases":[{"ip":"10.0.0.1","hostnames":["db"]}]}}}}}],"metrics":{"port":9090,"path":"/m/v1"}}`,
		"public":      `{"ports":[{"port":80}],"ingress":{"public":true,"annotations":{"pipeops.io/answer-timeout":"5m","pipeops.io/gateway-mode":"tunnel"}}}`,
		"visitors":    `{"ports":[{"port":80}],"ingress":{"public":true,"hosts":[{"host":"a.example.com"}],"visitors":{"allowFrom":["10.1.2.3/8","192.0.2.7","2001:db8::/32","::1"],"basicAuthSecret":"users","requestsPerSecond":5,"maxBodyBytes":1048576}}}`,
		"sign-in":     `{"ports":[{"port":80}],"ingress":{"public":true,"visitors":{"allowFrom":["10.0.0.0/8"],"signIn":{"secret":"web-signin","emails":["Anna@example.com","*@example.org","*"],"groups":["shop","Domain Admins"]},"serviceTokensSecret":"web-tokens"}}}`,
		"devices":     `{"resources":{"limits":{"memory":"1Gi"},"devices":{"nvidia.com/gpu":2,"smarter-devices/video_0":1}}}`,
		"recreated":   `{"update":{"strategy":"Recreate"}}`,
		"root":        `{"security":{"runAsUser":0,"allowRoot":true}}`,
		"StatefulSet": `{"type":"StatefulSet","replicas":3,"volumes":[{"name":"data","mountPath":"/data","claim":{"size":"1Gi","storageClass":"fast"}}],"disruption":{"maxUnavailable":"1"}}`,
		"DaemonSet":   `{"type":"DaemonSet","ports":[{"port":80}],"update":{"maxSurge":"1","maxUnavailable":"0"}}`,
		"Job":         `{"type":"Job","job":{"retries":0,"deadlineSeconds":60,"ttlSeconds":0,"completions":3,"parallelism":2}}`,
		"CronJob": `{"type":"CronJob","schedule":{"cron":"*/5 2-4 * * MON-FRI","timeZone":"Europe/Berlin","concurrency":"Replace","startingDeadlineSeconds":60,"suspended":true},
			"job":{"ttlSeconds":600}}`,
	}
}
