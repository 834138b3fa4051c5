package crowd
type Crowd struct{}
func New() *Crowd { return &Crowd{} }
