"""Making it happen: from a configuration to a verified answer."""

from runner.program_name import DISTRIBUTION as DISTRIBUTION
