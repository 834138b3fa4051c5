#!/bin/sh
echo hello!
