package app

//go:generate go tool -modfile=../tools/go.mod controller-gen object paths=.
//go:generate go test ./crd -run FileIsUpToDate -update
