package runnerapi

//go:generate go tool -modfile=../internal/tools/go.mod controller-gen object paths=.

// DeepCopyInto copies s into out. It is written by hand because the generator
// of the others does not know time.Time, which is copied by assignment.
func (s *AppStatus) DeepCopyInto(out *AppStatus) {
	*out = *s
	out.URLs = append([]string(nil), s.URLs...)
	out.PublicURLs = append([]string(nil), s.PublicURLs...)
	if s.Diagnosis != nil {
		out.Diagnosis = s.Diagnosis.DeepCopy()
	}
	out.Runs = nil
	for _, r := range s.Runs {
		if r.FinishedAt != nil {
			t := *r.FinishedAt
			r.FinishedAt = &t
		}
		out.Runs = append(out.Runs, r)
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

// DeepCopy is a copy that shares nothing with s.
func (s *AppStatus) DeepCopy() *AppStatus {
	if s == nil {
		return nil
	}
	out := new(AppStatus)
	s.DeepCopyInto(out)
	return out
}
