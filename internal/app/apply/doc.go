// Package apply makes the objects of an App match what is desired. It corrects drift, and adopts
// objects on request. It changes no object of another owner.
package apply
