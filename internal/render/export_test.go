package render

// Do carries a job out in this process; nobody is asked.
func Do(j Job) Result { return do(j, nobody{}) }

type nobody struct{}

func (nobody) read(Identity) error             { return nil }
func (nobody) at(string) error                 { return nil }
func (nobody) lookup(Question) ([]byte, error) { return nil, nil }
