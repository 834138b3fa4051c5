// Package publish sends announcements to RabbitMQ for the control plane, and manages the dead
// letters: the announcements that Runners could not handle.
package publish
