// Package receiver takes the webhooks of Git servers: push, tag, and pull or merge request events
// of GitHub, GitLab, Gitea, Forgejo, Bitbucket, and of senders that sign with an HMAC.
//
// A webhook brings nothing but a request to look at a source's repository. Agents learn of it with
// the answer to a heartbeat, for which the control plane asks them at once, through the tunnel.
// They get the commit from the repository by themselves, within the cluster owner's policy. So a
// forged webhook can do no more than cause a look (docs/adr/0080-push-webhooks.md).
package receiver
