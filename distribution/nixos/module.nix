# Not tried on NixOS.
{ config, lib, pkgs, ... }:

let
  cfg = config.services.svcd;
in
{
  options.services.svcd = {
    enable = lib.mkEnableOption "svcd, a search engine";
    package = lib.mkOption {
      type = lib.types.package;
      description = "The package with bin/svcd.";
    };
    address = lib.mkOption {
      type = lib.types.str;
      default = "localhost:7700";
      description = "Address to listen on.";
    };
    masterKeyFile = lib.mkOption {
      type = lib.types.path;
      description = "File with the master key as its only line.";
    };
    settings = lib.mkOption {
      type = (pkgs.formats.toml { }).type;
      default = { };
      description = "Further options, as keys of the configuration file.";
    };
  };

  config = lib.mkIf cfg.enable {
    systemd.services.svcd = {
      description = "svcd, a search engine";
      wantedBy = [ "multi-user.target" ];
      after = [ "network.target" ];
      serviceConfig = {
        Type = "notify";
        ExecStart = lib.escapeShellArgs [
          "${cfg.package}/bin/svcd"
          "--env" "production"
          "--http-addr" cfg.address
          "--config-file-path" ((pkgs.formats.toml { }).generate "svcd.toml" cfg.settings)
        ];
        LoadCredential = "master-key:${cfg.masterKeyFile}";
        DynamicUser = true;
        StateDirectory = "svcd";
        WorkingDirectory = "/var/lib/svcd";
        Restart = "on-failure";
        RestartPreventExitStatus = 2; # a wrong option
        TimeoutStartSec = "infinity"; # an upgrade of a large database
        TimeoutStopSec = 60;
        NoNewPrivileges = true;
        ProtectSystem = "strict";
        ProtectHome = true;
        PrivateTmp = true;
      };
    };
  };
}
