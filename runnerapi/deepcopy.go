package runnerapi

//go:generate go tool -modfile=../internal/tools/go.mod controller-gen object paths=.

// DeepCopyInto copies s into out. It is written by hand because the generator does not support
// time.Time, which is copied by assignment.
func (s *AppStatus) DeepCopyInto(out *AppStatus) {
	*out = *s
	out.URLs = append([]string(nil), s.URLs...)
	out.Conditions = append([]Condition(nil), s.Conditions...)
	out.PublicURLs = append([]string(nil), s.PublicURLs...)
	out.LastLines = append([]string(nil), s.LastLines...)
	if s.Diagnosis != nil {
		out.Diagnosis = s.Diagnosis.DeepCopy()
	}
	out.Runs = nil
	for _, r := range s.Runs {
		r.FinishedAt, r.ExitCode = clone(r.FinishedAt), clone(r.ExitCode)
		out.Runs = append(out.Runs, r)
	}
	out.Jobs = nil
	for _, j := range s.Jobs {
		j.StartedAt, j.FinishedAt, j.ExitCode, j.Diagnosis = clone(j.StartedAt), clone(j.FinishedAt), clone(j.ExitCode), j.Diagnosis.DeepCopy()
		out.Jobs = append(out.Jobs, j)
	}
	if s.Undone != nil {
		out.Undone = s.Undone.DeepCopy()
	}
	if s.Drift != nil {
		d := *s.Drift
		d.Fields = append([]string(nil), d.Fields...)
		out.Drift = &d
	}
	if s.LastTransition != nil {
		t := *s.LastTransition
		out.LastTransition = &t
	}
}

// DeepCopy returns a copy that shares nothing with s.
func (s *AppStatus) DeepCopy() *AppStatus {
	if s == nil {
		return nil
	}
	out := new(AppStatus)
	s.DeepCopyInto(out)
	return out
}

// clone copies what a pointer points to.
func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}
