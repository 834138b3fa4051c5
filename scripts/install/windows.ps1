# Puts the PipeOps agent on a Windows machine, for development: k3s in a Linux
# distribution of WSL2, by the install.sh of the same release. `install.ps1 help`
# tells the rest; docs/cluster-owner/install.md has more. PowerShell 5.1 or newer.
#
#   $env:AGENT_TOKEN = '...'; $env:CLUSTER_NAME = 'laptop'
#   powershell -ExecutionPolicy Bypass -File install.ps1 [COMMAND] [-DryRun] [-Distribution NAME]
#
# Made from scripts/install/windows.ps1 by `go generate ./scripts/install`. Do not edit
# the one in scripts. Nothing happens before the last line, so half a download does nothing.
param(
    [string]$Command = 'install',
    [string]$Distribution = $env:PIPEOPS_WSL_DISTRIBUTION,
    [string]$Version = $env:PIPEOPS_VERSION,
    [switch]$DryRun,
    [switch]$Yes
)

# `make release` stamps these.
$RELEASE_VERSION = "dev"
$RELEASE_INSTALL_SHA256 = ""

Set-StrictMode -Version 3.0
$ErrorActionPreference = 'Stop'

# As install.sh has them.
$ExitUsage = 2
$ExitRoot = 3
$ExitMachine = 4
$ExitDecision = 8

$NewDistribution = 'Ubuntu-24.04'
$TaskName = 'PipeOps agent in WSL'
# The page about every code, which internal/problem/catalog makes.
$Errors = 'https://github.com/pipeops/pipeops-vm-agent/blob/main/docs/reference/errors.md'
$OldestBuild = 19041 # Windows 10 2004, the first with `wsl --install`

# Settings that go on into the distribution; those with /p are files, whose paths
# WSL translates. WSLENV hands them over in the environment: nothing of them is in
# the arguments of a process.
$Settings = @(
    'AGENT_TOKEN', 'AGENT_TOKEN_FILE/p', 'CLUSTER_NAME', 'COMPONENTS', 'PRESET', 'PIPEOPS_POLICY', 'PIPEOPS_CONTROL_PLANE_URL', 'NODE_TYPE', 'K3S_URL', 'K3S_TOKEN', 'K3S_VERSION',
    'HTTPS_PROXY', 'NO_PROXY', 'PIPEOPS_CA_FILE/p', 'PIPEOPS_MIRROR', 'PIPEOPS_REGISTRY_MIRROR', 'PIPEOPS_BUNDLE/p',
    'PIPEOPS_VERSION', 'PIPEOPS_IMAGE', 'PIPEOPS_MANIFEST/p', 'PIPEOPS_WAIT', 'PIPEOPS_ALLOW_UNSIGNED', 'PIPEOPS_UPDATE_SIGNATURES', 'PIPEOPS_RELEASE_KEYS', 'LOG_LEVEL',
    'PIPEOPS_K3S_SHA256', 'PIPEOPS_K3S_INSTALL_SHA256', 'PIPEOPS_K3S_IMAGES_SHA256', 'PIPEOPS_K3D_SHA256', 'PIPEOPS_KIND_SHA256', 'PIPEOPS_MINIKUBE_SHA256', 'PIPEOPS_KUBECTL_SHA256'
)

# What runs in the distribution, as root: bash -c CODE bash VERSION SHA256 ARGUMENTS...
$LinuxHalf = @'
set -euo pipefail
version="$1" sum="${2#-}" # a release stamps the checksum; "-" is none, "other" another version's
shift 2
# error_say CODE WHAT FIX prints an error as install.sh does.
error_say() {
  local page=https://github.com/pipeops/pipeops-vm-agent/blob/main/docs/reference/errors.md
  printf 'error: %s\n  fix: %s\n  code: %s %s#%s\n' "$2" "$3" "$1" "$page" "$(tr PO po <<<"$1")" >&2
}

if [[ $sum == other ]]; then
  [[ -n ${PIPEOPS_BUNDLE:-} || ${PIPEOPS_ALLOW_UNSIGNED:-} == yes ]] || {
    error_say PO-9111 "this script knows install.sh of its own version alone, not of $version" \
      "use install.ps1 of $version; PIPEOPS_ALLOW_UNSIGNED=yes goes by an unsigned checksum"
    exit 6
  }
  sum=""
fi
dir="$(mktemp -d)"
trap 'rm -rf "$dir"' EXIT
command -v curl >/dev/null || {
  error_say PO-9012 "curl is not installed in the distribution" "apt-get update && apt-get install -y curl"
  exit 4
}
trust=()
if [[ -n ${PIPEOPS_CA_FILE:-} ]]; then
  cat /etc/ssl/certs/ca-certificates.crt "$PIPEOPS_CA_FILE" >"$dir/ca.pem" 2>/dev/null || cp "$PIPEOPS_CA_FILE" "$dir/ca.pem"
  trust=(--cacert "$dir/ca.pem")
fi
from="https://github.com/pipeops/pipeops-vm-agent/releases/download/$version"
[[ -z ${PIPEOPS_MIRROR:-} ]] || from="${PIPEOPS_MIRROR%/}/${from#https://}"
[[ -z ${PIPEOPS_BUNDLE:-} ]] || sum="" # a bundle has its own script, and its checksum
names=(install.sh)
[[ -n $sum ]] || names+=(SHA256SUMS)
for name in "${names[@]}"; do
  if [[ -n ${PIPEOPS_BUNDLE:-} ]]; then
    cp "$PIPEOPS_BUNDLE/$name" "$dir/$name"
  else
    curl --proto '=https' --tlsv1.2 -fsSL --retry 2 --connect-timeout 10 "${trust[@]}" -o "$dir/$name" "$from/$name" || {
      error_say PO-9102 "$from/$name cannot be downloaded" "check the version, HTTPS_PROXY and PIPEOPS_MIRROR"
      exit 5
    }
  fi
done
[[ -n $sum ]] || sum="$(awk '$2 == "install.sh" {print $1}' "$dir/SHA256SUMS")"
echo "$sum  $dir/install.sh" | sha256sum -c --quiet >/dev/null 2>&1 || {
  error_say PO-9112 "install.sh is not what its publisher made" "run it again; if it stays, do not use this source"
  exit 6
}
bash "$dir/install.sh" "$@"
'@

function Show-Help {
    @'
Puts the PipeOps agent on this machine: k3s in a Linux distribution of WSL2. For development.

  powershell -ExecutionPolicy Bypass -File install.ps1 [COMMAND] [FLAGS]

Commands
  install        (default) check Windows and WSL2, get a distribution where there is none, install k3s and the agent in it
  cluster-info, upgrade, uninstall, doctor    those of install.sh, in the distribution
  help           this

Flags
  -DryRun              say what would be done, and change nothing
  -Distribution NAME   use this distribution of WSL2 instead of a new Ubuntu-24.04
  -Version VERSION     version of the agent
  -Yes                 uninstall without asking

Settings are in the environment, as those of install.sh: AGENT_TOKEN, CLUSTER_NAME, PIPEOPS_CONTROL_PLANE_URL ...
It never restarts Windows. Exit codes are those of install.sh.
'@
}

# Stop-Install ends the script. Piped into iex it must not end the window.
function Stop-Install([int]$Exit, [string]$Code, [string]$What, [string]$Why, [string]$Fix) {
    $text = "error: $What`n  why: $Why`n  fix: $Fix`n  code: $Code $Errors#$($Code.ToLower())"
    if (-not $PSCommandPath) { throw $text }
    [Console]::Error.WriteLine($text)
    exit $Exit
}

function Write-Step([string]$Text) { Write-Host "==> $Text" }

# Test-Would says what a dry run leaves out; it answers whether this is one.
function Test-Would([string]$Text) {
    if ($DryRun) { Write-Host "  would $Text" }
    return $DryRun.IsPresent
}

function Test-Administrator {
    $identity = New-Object Security.Principal.WindowsPrincipal([Security.Principal.WindowsIdentity]::GetCurrent())
    return $identity.IsInRole([Security.Principal.WindowsBuiltInRole]::Administrator)
}

# Invoke-Wsl runs wsl.exe and answers its output; the exit code is in LASTEXITCODE.
# Windows PowerShell would take the first line on standard error for a failure.
function Invoke-Wsl([string[]]$Arguments) {
    $ErrorActionPreference = 'Continue'
    return @(& wsl.exe @Arguments 2>$null | ForEach-Object { "$_".Trim() } | Where-Object { $_ })
}

function Assert-Windows {
    $system = Get-CimInstance -ClassName Win32_OperatingSystem
    $build = [int]$system.BuildNumber
    if ($build -lt $OldestBuild) {
        Stop-Install $ExitMachine 'PO-9501' "Windows build $build is too old" "WSL2 needs build $OldestBuild or newer" 'install the updates of Windows'
    }
    $architecture = if ($env:PROCESSOR_ARCHITEW6432) { $env:PROCESSOR_ARCHITEW6432 } else { $env:PROCESSOR_ARCHITECTURE }
    if ($architecture -notin 'AMD64', 'ARM64') {
        Stop-Install $ExitMachine 'PO-9004' "the processor is $architecture" 'there is k3s for amd64 and arm64 only' 'use another machine'
    }
    # A hypervisor that runs already hides what the processor can.
    if (-not (Get-CimInstance -ClassName Win32_ComputerSystem).HypervisorPresent) {
        $able = Get-CimInstance -ClassName Win32_Processor | Where-Object { $_.VirtualizationFirmwareEnabled }
        if (-not $able) {
            Stop-Install $ExitMachine 'PO-9502' 'virtualisation is switched off' 'WSL2 runs Linux in a virtual machine' `
                'switch it on in the firmware (Intel VT-x, AMD-V); in a virtual machine: nested virtualisation'
        }
    }
    Write-Host "    $($system.Caption), build $build, $architecture, virtualisation is there"
}

# Install-Wsl puts WSL onto the machine. It answers whether it can be used at once.
function Install-Wsl {
    $there = $false
    if (Get-Command wsl.exe -ErrorAction SilentlyContinue) {
        $null = Invoke-Wsl @('--status')
        $there = $LASTEXITCODE -eq 0
    }
    if ($there) {
        Write-Host '    WSL is there'
        return $true
    }
    if (Test-Would 'install WSL: wsl.exe --install --no-distribution; Windows may have to be restarted then, by you') { return $false }
    if (-not (Test-Administrator)) {
        Stop-Install $ExitRoot 'PO-9003' 'WSL is not installed' 'only an administrator can do that' 'run this once as administrator, or: wsl --install --no-distribution'
    }
    Write-Step 'WSL'
    & wsl.exe --install --no-distribution | Out-Host
    $null = Invoke-Wsl @('--status')
    if ($LASTEXITCODE -ne 0) {
        Stop-Install $ExitDecision 'PO-9503' 'WSL is installed, and Windows has to be restarted' 'it does not run before; this script does not restart Windows' 'restart Windows, and run it again'
    }
    return $true
}

# Select-Distribution finds or gets the distribution, and answers its name.
function Select-Distribution {
    $names = Invoke-Wsl @('--list', '--quiet')
    if ($Distribution) {
        if ($names -notcontains $Distribution) {
            Stop-Install $ExitUsage 'PO-9504' "WSL has no distribution $Distribution" "it has: $($names -join ', ')" "wsl --install --distribution $Distribution"
        }
        return $Distribution
    }
    if ($names -contains $NewDistribution) {
        $null = Invoke-Wsl @('--distribution', $NewDistribution, '--user', 'root', '--exec', 'test', '-d', '/var/lib/pipeops-install')
        if ($LASTEXITCODE -eq 0) { return $NewDistribution }
        Stop-Install $ExitDecision 'PO-9504' "there is a distribution $NewDistribution already" 'nobody has said that the agent is meant to go into it' "-Distribution $NewDistribution"
    }
    if (Test-Would "get the distribution: wsl.exe --install --distribution $NewDistribution --no-launch") { return '' }
    Write-Step "the distribution $NewDistribution"
    & wsl.exe --install --distribution $NewDistribution --no-launch | Out-Host
    if ($LASTEXITCODE -ne 0) {
        Stop-Install $ExitMachine 'PO-9505' "$NewDistribution cannot be installed" "wsl.exe ended with $LASTEXITCODE" "wsl --install --distribution $NewDistribution"
    }
    return $NewDistribution
}

# Assert-Distribution: k3s needs the kernel of WSL2, and systemd to keep it running.
function Assert-Distribution([string]$Name) {
    $kernel = "$(Invoke-Wsl @('--distribution', $Name, '--user', 'root', '--exec', 'uname', '-r'))"
    if ($kernel -notmatch 'WSL2') {
        Stop-Install $ExitMachine 'PO-9505' "$Name is not of WSL version 2" "its kernel is $kernel" "wsl --set-version $Name 2"
    }
    $init = "$(Invoke-Wsl @('--distribution', $Name, '--user', 'root', '--exec', 'cat', '/proc/1/comm'))"
    if ($init -ne 'systemd') {
        Stop-Install $ExitMachine 'PO-9006' "systemd does not run in $Name" "its first process is $init, and nothing would keep k3s running" `
            "in it, put [boot] and systemd=true into /etc/wsl.conf; then: wsl --terminate $Name"
    }
    Write-Host "    $Name runs on $kernel, with systemd"
}

# Register-KeepAlive: WSL ends a distribution in which no program of a user's runs,
# whatever its services do.
function Register-KeepAlive([string]$Name) {
    if (Test-Would "keep $Name running while you are logged on: the scheduled task '$TaskName'") { return }
    $user = [Security.Principal.WindowsIdentity]::GetCurrent().Name
    $action = New-ScheduledTaskAction -Execute 'conhost.exe' -Argument "--headless wsl.exe --distribution $Name --user root --exec sleep infinity"
    $options = New-ScheduledTaskSettingsSet -AllowStartIfOnBatteries -DontStopIfGoingOnBatteries -ExecutionTimeLimit ([TimeSpan]::Zero)
    $null = Register-ScheduledTask -TaskName $TaskName -Action $action -Settings $options -Trigger (New-ScheduledTaskTrigger -AtLogOn -User $user) -Force
    Start-ScheduledTask -TaskName $TaskName
}

function Unregister-KeepAlive {
    if (-not (Get-ScheduledTask -TaskName $TaskName -ErrorAction SilentlyContinue)) { return }
    if (Test-Would "remove the scheduled task '$TaskName'") { return }
    Unregister-ScheduledTask -TaskName $TaskName -Confirm:$false
}

# Get-LinuxArguments are those of wsl.exe. Base64 has nothing that any of the command
# lines on the way would take for its own; there is no secret in it.
function Get-LinuxArguments([string]$Name) {
    $code = [Convert]::ToBase64String([Text.Encoding]::UTF8.GetBytes($LinuxHalf.Replace("`r`n", "`n") + "`n"))
    $wanted = if ($Version) { $Version } else { $RELEASE_VERSION }
    $sum = if ($wanted -eq $RELEASE_VERSION) { $RELEASE_INSTALL_SHA256 } elseif ($RELEASE_INSTALL_SHA256) { 'other' } else { '' }
    if (-not $sum) { $sum = '-' } # an empty argument gets lost on the way
    $arguments = @('--distribution', $Name, '--user', 'root', '--exec', 'bash', '-c', "source <(base64 -d <<<$code)", 'bash', $wanted, $sum, $Command)
    if ($DryRun) { $arguments += '--dry-run' }
    if ($Yes) { $arguments += '--yes' }
    return $arguments
}

# Invoke-Linux runs install.sh in the distribution, and answers its exit code.
function Invoke-Linux([string]$Name) {
    $before = $env:WSLENV
    try {
        $env:WSLENV = (@($Settings) + @("$before" -split ':' | Where-Object { $_ })) -join ':'
        $arguments = Get-LinuxArguments $Name
        & wsl.exe @arguments | Out-Host
        return $LASTEXITCODE
    }
    finally {
        $env:WSLENV = $before
    }
}

function Invoke-Main {
    if ($Command -eq 'help') {
        Show-Help
        return
    }
    if ($Command -notin 'install', 'cluster-info', 'upgrade', 'uninstall', 'doctor') {
        Stop-Install $ExitUsage 'PO-9002' "there is no command $Command" 'see those that there are' 'install.ps1 help'
    }
    if ($env:OS -ne 'Windows_NT') {
        Stop-Install $ExitMachine 'PO-9004' 'this is not Windows' 'install.ps1 sets up WSL2' 'bash install.sh'
    }
    $env:WSL_UTF8 = '1' # wsl.exe's own messages are UTF-16 otherwise
    Write-Step 'this machine'
    Assert-Windows
    if (-not (Install-Wsl)) { return }
    $name = Select-Distribution
    if (-not $name) { return }
    Assert-Distribution $name
    $code = Invoke-Linux $name
    if ($Command -eq 'install' -and $code -eq 0) { Register-KeepAlive $name }
    if ($Command -eq 'uninstall' -and $code -eq 0) {
        Unregister-KeepAlive
        Write-Host "    the distribution stays; with all that is in it, it goes by: wsl --unregister $name"
    }
    if ($code -ne 0 -and -not $PSCommandPath) { throw "install.sh ended with $code" }
    if ($code -ne 0) { exit $code }
}

Invoke-Main
