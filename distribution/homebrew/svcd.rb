# Not tried on Homebrew. The address is a placeholder; `make release` writes a copy with the checksum of its svcd.pyz.
class Svcd < Formula
  desc "Search engine in one small daemon, with an HTTP interface"
  homepage "https://example.org/svcd"
  url "https://example.org/svcd/v0.1.0/svcd.pyz"
  version "0.1.0"
  sha256 "0000000000000000000000000000000000000000000000000000000000000000"
  license "MIT"

  depends_on "python@3.13"

  def install
    libexec.install "svcd.pyz"
    (bin/"svcd").write <<~SH
      #!/bin/sh
      exec "#{Formula["python@3.13"].opt_bin}/python3.13" "#{libexec}/svcd.pyz" "$@"
    SH
    chmod 0755, bin/"svcd"
  end

  service do
    run [opt_bin/"svcd", "--db-path", var/"svcd/data.ms"]
    keep_alive true
    working_dir var/"svcd"
    log_path var/"log/svcd.log"
    error_log_path var/"log/svcd.log"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/svcd --version")
  end
end
