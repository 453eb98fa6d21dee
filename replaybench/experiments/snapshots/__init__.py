"""What a run was like at times along its way: what its buffer held, what its policy did."""
