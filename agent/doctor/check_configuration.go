package doctor

import "context"

const fixConfiguration = "look at `pipeops-agent config get`"

// configuration returns a finding for each mistake in the settings.
func (e *exam) configuration(context.Context) []Finding {
	if e.ConfigErr == nil {
		if e.Config.SelfUpdate { // which `run` would not begin without enough keys
			if _, err := e.Config.ReleaseTrust(e.ReleaseKeys); err != nil {
				return failure(err, fixConfiguration)
			}
		}
		return ok("cluster " + e.Config.ClusterName + ", control plane " + e.Config.ControlPlaneURL)
	}
	var findings []Finding
	for _, err := range leaves(e.ConfigErr) {
		findings = append(findings, failure(err, fixConfiguration)...)
	}
	return findings
}

// leaves returns the single errors in a joined one.
func leaves(err error) []error {
	joined, several := err.(interface{ Unwrap() []error })
	if !several {
		return []error{err}
	}
	var all []error
	for _, part := range joined.Unwrap() {
		all = append(all, leaves(part)...)
	}
	return all
}
